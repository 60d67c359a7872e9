// The table of operations that each instruction set fills in: the only way from the engine to a kernel.
//
// A kernel works on one unit (some rows of a matrix, one row of activations, some heads of some
// queries); engine.cpp cuts the work into units and spreads them over the threads.
#pragma once

#include <cstdint>

namespace stoker {

// One row of activations, as float32 and quantised for one block length. When the number of blocks is
// not a multiple of 8 the quantised arrays go on cyclically for 7 more blocks, so a kernel may take 8
// consecutive blocks from any phase (see ops/rows_blocks.h).
struct Act {
  const float* x;
  const int8_t* codes;
  const float* scales;    // one per block
  const int16_t* sums16;  // sum of each 16 codes
  const int16_t* sums32;  // sum of each 32 codes
};

struct ActOut {
  int8_t* codes;
  float* scales;
  int16_t* sums16;
  int16_t* sums32;
};

// outs[t][r] = W[r] . acts[t] for rows row0 <= r < row1 and tokens 0 <= t < tokens.
struct RowsJob {
  const uint8_t* w;  // the matrix's first byte
  int64_t cols;
  int64_t row0, row1;
  const Act* acts;
  float* const* outs;
  int64_t tokens;
  uint8_t* scratch;  // SCRATCH_BYTES, 64-byte aligned, owned by the calling thread
};

struct FormatOps {
  int id;
  const char* name;
  int stored;  // values of a stored block
  int block;   // values of a term block; 1: unquantised, takes Act::x
  int bytes;   // of a stored block
  void (*rows)(const RowsJob&);
  void (*dequantise)(const uint8_t* row, int64_t cols, float* out);
};

enum KvFormat { KV_F16, KV_Q8_0, KV_LATENT, KV_FORMATS };

constexpr int64_t NO_WINDOW = INT64_MAX;

// The first key that the query at `position` sees.
constexpr int64_t first_key(int64_t position, int64_t window) {
  return position < window ? 0 : position - window + 1;
}

// A record: m, l, padding to 16 floats, then o.
constexpr int RECORD_HEAD = 16;
constexpr int64_t attention_record(int value_dim) { return RECORD_HEAD + value_dim; }

// Caches: see ops/attention.h and kernels/table.py.
struct AttentionArgs {
  const float* q;
  const uint8_t* k_cache;
  const uint8_t* v_cache;
  KvFormat format;
  float* out;
  int64_t n, start, rows;  // of the cache: position p lies at p mod rows
  int heads, kv_heads, head_dim;
  float scale;
  int64_t window = NO_WINDOW;
  const float* sinks = nullptr;  // [heads]
  // Of a latent cache: q holds the first value_dim values of each query, tail the others.
  const float* tail = nullptr;
  int value_dim = 0;
};

// Queries row0 <= i < row1 (positions start + i), heads head0 <= h < head1 of one key/value head. With
// `states`, only the keys of one span: record i * (head1 - head0) + h receives m, l and o of the contract.
struct AttentionJob : AttentionArgs {
  int64_t row0, row1;
  int head0, head1, kv_head;
  float* states;
  int64_t span;
  uint8_t* scratch;
};

struct StoreKvArgs {
  const float* k;
  const float* v;
  uint8_t* k_cache;
  uint8_t* v_cache;
  KvFormat format;
  int64_t n, start, rows;  // as AttentionArgs
  int kv_heads, head_dim;
};

// One position, whose keys and values [kv_heads][head_dim] are at k and v.
struct StoreKvJob : StoreKvArgs {
  int64_t position;
  uint8_t* scratch;
};

// Channels channels0 <= c < channels1 of all tokens. state: the last inputs [CONV_TAPS - 1][channels], oldest
// first; weight [CONV_TAPS][channels]; out may be x. Inputs are `dilation` tokens apart, 1 or 3: then the state
// holds that many times more of them.
struct ConvJob {
  const float* x;
  const float* weight;
  float* state;
  float* out;
  int64_t tokens, channels, channels0, channels1;
  int dilation;
};

// One value head: each pointer is at its first token. Rows of q, k and v are `row` floats apart, those of g
// and beta v_heads, those of out v_heads * dv. state: [dk][dv].
struct DeltaJob {
  const float* q;
  const float* k;
  const float* v;
  const float* g;
  const float* beta;
  float* state;
  float* out;
  int64_t tokens, row, v_heads;
  int dk, dv;
  float eps, scale;
  uint8_t* scratch;
};

constexpr int64_t DELTA_TOKENS = 128;  // whose unit vectors wait in the scratch

enum Gate { GATE_SIGMOID, GATE_SOFTPLUS, GATES };

// What a router does beside choosing so many experts (contract, point 8). Arrays of a value per expert, or null.
struct Routing {
  bool sigmoid = false, normalise = true;
  float scale = 1.0f;
  int64_t groups = 1, groups_used = 1;
  const float* bias = nullptr;
  const float* selection_bias = nullptr;
  const float* expert_scale = nullptr;
};

enum Activation { ACT_SILU, ACT_GELU, ACT_CLAMPED, ACTIVATIONS };

constexpr int64_t SCRATCH_BYTES = 1 << 20;
constexpr int64_t MAX_COLS = 1 << 18;  // bounds every use of the scratch
constexpr int64_t MAX_EXPERTS = MAX_COLS / 4;
constexpr int MAX_HEAD_DIM = 512;
constexpr int MAX_INDEX_HEADS = 16;
constexpr int MAX_LATENT_ROW = 640;  // values of a row of a latent cache
constexpr int ATTENTION_ROWS = 8;    // queries that share a pass over the keys
constexpr int ATTENTION_HEADS = 16;  // heads of one job
constexpr int ATTENTION_QUERIES = ATTENTION_ROWS * ATTENTION_HEADS;

struct OpTable {
  const char* name;
  const FormatOps* formats;
  int format_count;
  void (*quantise)(const float* x, int64_t cols, int block, const ActOut& out);
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  void (*rotate)(float* head, const float* cos, const float* sin, int64_t half);
  void (*rotate_adjacent)(float* head, const float* cos, const float* sin, int64_t half);
  void (*store_kv[KV_LATENT])(const StoreKvJob&);
  void (*store_latent)(const float* c, int64_t latent, const float* tail, int64_t more, uint16_t* row);
  void (*attention[KV_FORMATS])(const AttentionJob&);
  // One query: joins its records of `spans` spans, `stride` floats apart, to its state; then writes
  // out[value_dim] unless that is null. `sink` may be null.
  void (*join_attention)(float* state, const float* next, int64_t stride, int64_t spans, const float* sink,
                         int value_dim, float* out);
  void (*conv_step)(const ConvJob&);
  void (*delta_net)(const DeltaJob&);
  void (*route)(const float* logits, int64_t count, int64_t used, const Routing& r, int32_t* ids, float* weights,
                float* scratch);
  void (*glu[ACTIVATIONS])(float* gate, const float* up, int64_t n);  // gate = activation(gate, up)
  // x[i] *= activation of gate[i], or of gate[0] for all.
  void (*gates[GATES])(float* x, const float* gate, bool one, int64_t n);
  void (*delta_gates)(float* decay, float* beta, const float* rate, const float* bias, int64_t heads);
  void (*combine)(const float* y, const float* weights, int64_t used, int64_t n, float* out);
  void (*add)(float* a, const float* b, int64_t n);
  void (*inject)(float* streams, const float* x, const float* logits, int64_t count, int64_t n);
  void (*keyed_values)(const float* key, const float* query, const float* value, int64_t count, int64_t n,
                       float* out);
  void (*mean_halves)(const uint16_t* rows, int count, int n, float* out);  // of rows [count][n]
  float (*max_of)(const float* x, int64_t n);
  void (*span_total)(const float* x, int64_t n, float* state);  // state: m, l
};

extern const OpTable scalar_table;
#if defined(__x86_64__)
extern const OpTable avx2_table, avxvnni_table, avx512_table, avx512vnni_table;
#elif defined(__aarch64__)
extern const OpTable neon_table, neondot_table;
#endif

}  // namespace stoker
