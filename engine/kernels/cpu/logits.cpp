// Operations over the logits of one position: what a sampler needs to know of a large vocabulary.
//
// Both pass once over the logits in spans, on all threads. The best k lie in spans whose own largest is at
// least the k-th largest of them, so only those few are looked into.
#include "contract.h"
#include "engine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace stoker {

namespace {

constexpr float LOWEST = -std::numeric_limits<float>::infinity();
constexpr int64_t UNIT_SPANS = SMALL_WORK / KEY_SPAN;  // spans of one unit

int64_t spans_of(int64_t n) { return (n + KEY_SPAN - 1) / KEY_SPAN; }

}  // namespace

template <class Body>
void Engine::for_spans(int64_t n, const Body& body) {
  const int64_t spans = spans_of(n), units = (spans + UNIT_SPANS - 1) / UNIT_SPANS;
  for_rows(units, SMALL_WORK, [&](int64_t unit, int) {
    for (int64_t s = unit * UNIT_SPANS; s < std::min(spans, (unit + 1) * UNIT_SPANS); ++s)
      body(s, s * KEY_SPAN, std::min<int64_t>(KEY_SPAN, n - s * KEY_SPAN));
  });
}

void Engine::total(const float* x, int64_t n, float* out) {
  const Call call(busy_);
  const int64_t spans = spans_of(n), record = attention_record(0);
  float* states = states_.floats(spans * record);
  for_spans(n, [&](int64_t s, int64_t at, int64_t size) {
    ops_.span_total(x + at, size, states + s * record);
  });
  int64_t seen = 0;  // spans with more than -Inf
  for (int64_t s = 0; s < spans; ++s) {
    const float m = states[s * record], l = states[s * record + 1];
    if (m == LOWEST && l == 0.0f) continue;
    states[seen * record] = m;
    states[seen++ * record + 1] = l;
  }
  ops_.join_attention(states, states + record, record, seen - 1, nullptr, 0, nullptr);  // states without an o
  out[0] = seen == 0 ? LOWEST : states[0] + 0.0f;  // which of two zeros won is not defined
  out[1] = seen == 0 ? 0.0f : states[1];
}

void Engine::best(const float* x, int64_t n, int64_t k, int32_t* ids, float* values) {
  const Call call(busy_);
  const int64_t spans = spans_of(n);
  float* largest = states_.floats(2 * spans);
  for_spans(n, [&](int64_t s, int64_t at, int64_t size) { largest[s] = ops_.max_of(x + at, size); });
  float bound = LOWEST;  // k values are at least this
  if (k <= spans) {
    float* sorted = std::copy(largest, largest + spans, largest + spans) - spans;
    std::nth_element(sorted, sorted + k - 1, sorted + spans, std::greater<float>());
    bound = sorted[k - 1];
  }
  candidates_.clear();
  for (int64_t s = 0; s < spans; ++s) {
    if (largest[s] < bound) continue;
    for (int64_t i = s * KEY_SPAN; i < std::min(n, (s + 1) * KEY_SPAN); ++i)
      if (!(x[i] < bound)) candidates_.push_back(static_cast<int32_t>(i));
  }
  const auto value = [&](int32_t i) { return std::isnan(x[i]) ? LOWEST : x[i]; };
  const auto better = [&](int32_t a, int32_t b) {
    return value(a) > value(b) || (value(a) == value(b) && a < b);
  };
  const auto end = candidates_.begin() + k;  // a heap, as in partial_sort, is slow where k is large
  if (end != candidates_.end()) std::nth_element(candidates_.begin(), end, candidates_.end(), better);
  std::sort(candidates_.begin(), end, better);
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = candidates_[static_cast<size_t>(i)];
    values[i] = x[ids[i]];
  }
}

}  // namespace stoker
