// The engine: operations on whole arrays, cut into units and spread over the pool.
//
// It trusts its arguments; module.cpp checks them. One call at a time (a mutex holds others back).
// Buffers grow to the largest call seen and are then reused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "float_mode.h"
#include "optable.h"
#include "pool.h"

namespace stoker {

struct MatrixRef {
  const uint8_t* data;
  const FormatOps* format;
  int64_t rows, cols;
  int64_t row_bytes() const { return cols / format->stored * format->bytes; }
};

struct Product {
  MatrixRef w;
  float* out;
};

// The same matrix of every expert: `data` is at this offset inside each expert's slot.
struct ExpertMatrixRef {
  int64_t offset;
  const FormatOps* format;
  int64_t rows, cols;
  MatrixRef in(uint64_t slot) const {
    return {reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(slot)) + offset, format, rows, cols};
  }
};

// 64-byte aligned memory that only grows.
class Buffer {
 public:
  uint8_t* at_least(int64_t bytes) {
    if (bytes > size_) {
      const int64_t size = bytes + bytes / 4;
      lines_.reset(new Line[static_cast<size_t>(size + 63) / 64]);
      size_ = size;  // now that there is so much
    }
    return reinterpret_cast<uint8_t*>(lines_.get());
  }
  float* floats(int64_t n) { return reinterpret_cast<float*>(at_least(n * 4)); }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::unique_ptr<Line[]> lines_;
  int64_t size_ = 0;
};

// Rows of activations, quantised for one block length (1: only the float32 rows).
struct ActRows {
  std::vector<Act> acts;
  Buffer storage;
};

constexpr int64_t SMALL_WORK = 16 << 10;  // values: less is not worth waking a thread

// Rows c[latent] and then tail[more] of a cache [ctx][latent + more].
struct StoreLatentArgs {
  const float* c;
  const float* tail;
  uint16_t* cache;
  int64_t n, start, latent, more;
};

// Values first .. first + 2 * half - 1 of each head are rotated; with weights, of the head's norm.
struct RopeArgs {
  float* x;
  const float* cos;
  const float* sin;
  int64_t n, start, half;
  int heads, head_dim, first;
  bool adjacent;
  const float* weight = nullptr;
  float eps = 0.0f;
};

struct ChooseArgs {
  const float* q;       // [n][heads][dim]
  const uint16_t* raw;  // [ctx][dim], of all positions
  float* keys;          // [ctx / ratio][dim], of whole blocks; written from that of position `start` on
  const float* weight;  // of the norm of a block's key
  const float* cos;
  const float* sin;
  int32_t* chosen;  // [n][width]: positions, ascending, then -1
  int64_t n, start, half, blocks;
  int heads, dim, ratio;
  float eps;
  int64_t width() const { return (blocks + 1) * ratio - 1; }
};

struct DeltaArgs {
  const float* qkv;  // [n][q of all key heads | k of all key heads | v of all value heads]
  const float* g;
  const float* beta;
  float* state;
  float* out;
  int64_t n;
  int k_heads, v_heads, dk, dv;
  bool tiled;  // value head p reads key head p mod k_heads, else p / (v_heads / k_heads)
  float eps, scale;
};

struct ExpertsArgs {
  const float* x;
  const int32_t* ids;
  const uint64_t* base;
  int64_t n, used, count;
  ExpertMatrixRef gate, up, down;
  float* y;
  Activation activation = ACT_SILU;
  // Of every expert, [count][rows], or null.
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
};

// The frame of all work: alone, and in the contract's floating-point mode.
struct Call {
  std::lock_guard<std::recursive_mutex> lock;  // work may be made of other work
  FloatMode mode;
  explicit Call(std::recursive_mutex& busy) : lock(busy) {}
};

class Engine {
 public:
  Engine(const OpTable& ops, int threads);

  const OpTable& ops() const { return ops_; }
  int threads() const { return pool_.threads(); }

  // Products of the same rows x with several matrices of the same width, as one job.
  void matmul(const std::vector<Product>& products, const float* x, int64_t n);
  // x and out [n][heads][..]: head h of each row times matrix h of those that w holds one below the other.
  void head_matmul(const MatrixRef& w, int64_t heads, const float* x, int64_t n, float* out);
  // weight [groups][cols]: row i takes group i mod groups.
  void rms_norm(const float* x, const float* weight, float eps, int64_t n, int64_t cols, float* out,
                int64_t groups = 1);
  void rope(const RopeArgs& a);
  void store_kv(const StoreKvArgs& a);
  void store_latent(const StoreLatentArgs& a);
  void attention(const AttentionArgs& a);
  void choose_blocks(const ChooseArgs& a);
  void attention_chosen(const AttentionArgs& a, const int32_t* chosen, int64_t width);
  void conv_step(const ConvJob& all);  // whatever its channels0 and channels1
  void delta_net(const DeltaArgs& a);
  void route(const float* logits, int64_t n, int64_t count, int64_t used, const Routing& r, int32_t* ids,
             float* weights);
  void experts(const ExpertsArgs& a);
  void combine(const float* y, const float* weights, int64_t n, int64_t used, int64_t cols, float* out);
  void add(float* a, const float* b, int64_t size);
  void fill(float* x, float value, int64_t size);
  void scale(float* x, float factor, int64_t size);
  void inject(float* streams, const float* x, const float* logits, int64_t n, int64_t count, int64_t cols);
  void keyed_values(const float* key, const float* query, const float* value, int64_t n, int64_t count,
                    int64_t cols, float* out);
  void add_row(float* a, const float* b, int64_t n, int64_t cols);  // b [cols] to each row
  void glu(float* gate, const float* up, int64_t size, Activation activation);
  void gate(Gate kind, float* x, const float* gate, int64_t n, int64_t cols, int64_t gates);
  void delta_gates(float* decay, float* beta, const float* rate, const float* bias, int64_t n, int64_t heads);
  void embed(const MatrixRef& w, const int32_t* ids, int64_t n, float* out);
  void total(const float* x, int64_t n, float* out);  // out: M and l of the contract
  // The k best of n: the greatest first, of equal values the lower id; NaN counts as -Inf.
  void best(const float* x, int64_t n, int64_t k, int32_t* ids, float* values);

 private:
  struct Group {  // the (token, slot) pairs of one expert, or all tokens of one head
    uint64_t slot;
    int64_t index;
    int64_t first, size;  // of the pairs, in the order of the groups
  };
  struct Part {  // rows row0 <= r < row1 of a group's matrix, for some of its pairs
    const Group& group;
    int64_t row0, row1, first, size;
    int thread;
  };

  uint8_t* scratch(int thread) { return scratch_ + static_cast<int64_t>(thread) * SCRATCH_BYTES; }
  void prepare(ActRows& rows, const float* x, int64_t n, int64_t cols, int block);
  // A unit is some rows of one group's matrix, shaped as w, for all its pairs, so that they are read once:
  // body(part), with a tile of tokens at a time.
  template <class Body>
  void for_groups(const MatrixRef& w, int64_t row_bytes, const Body& body);
  void multiply(const MatrixRef& w, const Part& p, const Act* acts, float* const* outs) {
    acts += p.first;
    w.format->rows({w.data, w.cols, p.row0, p.row1, acts, outs + p.first, p.size, scratch(p.thread)});
  }
  template <class Body>
  void for_rows(int64_t n, int64_t work_per_row, const Body& body) {
    const Call call(busy_);
    if (n * work_per_row <= SMALL_WORK)
      for (int64_t i = 0; i < n; ++i) body(i, 0);
    else
      pool_.run(n, body);
  }
  template <class Body>
  void for_parts(int64_t size, const Body& body) {  // of SMALL_WORK values
    for_rows((size + SMALL_WORK - 1) / SMALL_WORK, SMALL_WORK, [&](int64_t i, int) {
      body(i * SMALL_WORK, std::min(SMALL_WORK, size - i * SMALL_WORK));
    });
  }
  void block_keys(const ChooseArgs& a, int64_t end);
  void gather(const AttentionArgs& a, const int32_t* chosen, int64_t count, uint8_t* keys, uint8_t* values);
  // Adds the part's rows of an expert's bias, if there is one.
  void add_bias(float* out, const float* bias, int64_t rows, const Part& p) {
    if (bias != nullptr) ops_.add(out + p.row0, bias + p.group.index * rows + p.row0, p.row1 - p.row0);
  }
  template <class Body>
  void for_spans(int64_t n, const Body& body);  // body(span, its first logit, how many)

  const OpTable& ops_;
  Pool pool_;
  std::recursive_mutex busy_;
  Buffer scratch_buffer_;
  uint8_t* scratch_ = nullptr;
  // The rows of x, quantised for the block length that the matrix needs: 1, 32 or 256.
  ActRows& x_for(const MatrixRef& w) {
    return x_rows_[w.format->block == 256 ? 2 : w.format->block == 32 ? 1 : 0];
  }

  ActRows x_rows_[3], hidden_rows_;
  Buffer hidden_, states_, products_, chosen_keys_, chosen_values_;
  std::vector<float*> outs_;
  std::vector<Act> gathered_;
  std::vector<Group> groups_;
  std::vector<int64_t> first_, pairs_;
  std::vector<int32_t> candidates_;
};

}  // namespace stoker
