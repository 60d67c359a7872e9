// The router: one row of logits becomes a choice of experts and their weights (contract, point 8).
#pragma once

namespace STOKER_ISA {

// The place of the greatest of n values that are not among the k `taken`: the first of them unless a later one
// is greater.
STOKER_INLINE int64_t greatest(const float* v, int64_t n, const int32_t* taken, int64_t k) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i) {
    bool is_taken = false;
    for (int64_t t = 0; t < k; ++t) is_taken |= taken[t] == i;
    if (!is_taken && (best < 0 || v[i] > v[best])) best = i;
  }
  return best;
}

// to[i] = a[i] + b[i]
static void sum_of(const float* a, const float* b, int64_t n, float* to) {
  for_vectors(n, [&](int64_t i, int k) { store_some(to + i, load_some(a + i, k) + load_some(b + i, k), k); });
}

static void softmax(const float* logits, int64_t n, float* p) {
  const F top = splat(max_of(logits, n));
  for_vectors(n, [&](int64_t i, int k) { store_some(p + i, exp_of(load_some(logits + i, k) - top), k); });
  const F sum = splat(sum32(p, n));
  for_vectors(n, [&](int64_t i, int k) { store_some(p + i, load_some(p + i, k) / sum, k); });
}

// Leaves in `score` only the best groups. worth, kept: of `groups` values.
static void keep_best_groups(float* score, int64_t count, const Routing& r, float* worth, int32_t* kept) {
  const int64_t size = count / r.groups;
  for (int64_t g = 0; g < r.groups; ++g) {
    const float* group = score + g * size;
    const auto first = static_cast<int32_t>(greatest(group, size, nullptr, 0));
    worth[g] = r.sigmoid && size > 1 ? group[first] + group[greatest(group, size, &first, 1)] : group[first];
  }
  for (int64_t k = 0; k < r.groups_used; ++k) kept[k] = static_cast<int32_t>(greatest(worth, r.groups, kept, k));
  for (int64_t g = 0; g < r.groups; ++g) {
    bool stays = false;
    for (int64_t k = 0; k < r.groups_used; ++k) stays |= kept[k] == g;
    if (!stays)
      for (int64_t i = 0; i < size; ++i) score[g * size + i] = -__builtin_inff();
  }
}

// scratch: 4 * `count` floats.
static void route(const float* logits, int64_t count, int64_t used, const Routing& r, int32_t* ids, float* weights,
                  float* scratch) {
  float* p = scratch;
  if (r.bias != nullptr) {
    sum_of(logits, r.bias, count, p);
    logits = p;
  }
  if (r.sigmoid)
    for_vectors(count, [&](int64_t i, int k) { store_some(p + i, sigmoid(load_some(logits + i, k)), k); });
  else
    softmax(logits, count, p);
  float* score = p;
  if (r.selection_bias != nullptr || r.groups > 1) {
    score = scratch + count;
    if (r.selection_bias != nullptr)
      sum_of(p, r.selection_bias, count, score);
    else
      std::memcpy(score, p, static_cast<size_t>(count) * sizeof(float));
  }
  if (r.groups > 1)
    keep_best_groups(score, count, r, scratch + 2 * count, reinterpret_cast<int32_t*>(scratch + 3 * count));
  float total = 0.0f;
  for (int64_t e = 0; e < used; ++e) {
    ids[e] = static_cast<int32_t>(greatest(score, count, ids, e));
    weights[e] = p[ids[e]];
    total = e == 0 ? weights[e] : total + weights[e];
  }
  const float least = total > LEAST_WEIGHT_SUM || total != total ? total : LEAST_WEIGHT_SUM;
  const float divisor = r.normalise ? least : 1.0f;
  for (int64_t e = 0; e < used; ++e) {
    weights[e] = weights[e] / divisor * r.scale;
    if (r.expert_scale != nullptr) weights[e] = weights[e] * r.expert_scale[ids[e]];
  }
}

}  // namespace STOKER_ISA
