// Everything of one instruction set, included after its vector file: the ops, the formats, the table.
#pragma once

#include "../optable.h"
// Order matters: later files use earlier ones.
#include "math.h"
#include "quantise.h"
#include "../formats/concept.h"
#include "../formats/floats.h"
#include "../formats/fp4.h"
#include "../formats/iq1.h"
#include "../formats/iq2.h"
#include "../formats/iq3.h"
#include "../formats/iq4.h"
#include "../formats/q2_0.h"
#include "../formats/q2_k.h"
#include "../formats/q3_k.h"
#include "../formats/q4_0.h"
#include "../formats/q4_1.h"
#include "../formats/q4_k.h"
#include "../formats/q5_0.h"
#include "../formats/q5_k.h"
#include "../formats/q6_k.h"
#include "../formats/q8_0.h"
#include "../formats/tq1_0.h"
#include "rows_blocks.h"
#include "rows_float.h"
#include "rows_tile.h"
#include "rows_misc.h"
#include "gates.h"
#include "streams.h"
#include "glu.h"
#include "route.h"
#include "attention.h"
#include "attention_q8.h"
#include "attention_latent.h"
#include "delta_net.h"

namespace STOKER_ISA {

template <class Fmt>
constexpr FormatOps float_format(const char* name) {
  return {Fmt::ID, name, 1, 1, Fmt::BYTES, rows_float<Fmt>, dequantise_float<Fmt>};
}

template <class Fmt>
constexpr FormatOps block_format(const char* name) {
  return {Fmt::ID, name, Fmt::STORED, Fmt::BLOCK, Fmt::BYTES, rows_quantised<Fmt>, dequantise_blocks<Fmt>};
}

// A new format is one header and one line here.
static constexpr FormatOps FORMATS[] = {
    float_format<F32>("F32"),   float_format<F16>("F16"),   float_format<BF16>("BF16"),
    block_format<Q8_0>("Q8_0"),     block_format<Q5_1>("Q5_1"),     block_format<Q5_0>("Q5_0"),
    block_format<Q4_1>("Q4_1"),     block_format<Q4_0>("Q4_0"),     block_format<IQ4_NL>("IQ4_NL"),
    block_format<MXFP4>("MXFP4"),   block_format<NVFP4>("NVFP4"),   block_format<Q2_0>("Q2_0"),
    block_format<Q6_K>("Q6_K"),     block_format<Q5_K>("Q5_K"),     block_format<Q4_K>("Q4_K"),
    block_format<Q3_K>("Q3_K"),     block_format<Q2_K>("Q2_K"),     block_format<IQ4_XS>("IQ4_XS"),
    block_format<IQ3_S>("IQ3_S"),   block_format<IQ3_XXS>("IQ3_XXS"), block_format<IQ2_S>("IQ2_S"),
    block_format<IQ2_XS>("IQ2_XS"), block_format<IQ2_XXS>("IQ2_XXS"), block_format<IQ1_M>("IQ1_M"),
    block_format<IQ1_S>("IQ1_S"),   block_format<TQ2_0>("TQ2_0"),     block_format<TQ1_0>("TQ1_0"),
};

constexpr OpTable make_table(const char* name) {
  return {name,
          FORMATS,
          sizeof FORMATS / sizeof FORMATS[0],
          quantise,
          rms_norm,
          rotate,
          rotate_adjacent,
          {store_kv<HalfCache>, store_kv<Q8Cache>},
          store_latent,
          {attention<HalfCache>, attention<Q8Cache>, attention<LatentCache>},
          join_attention,
          conv_step,
          delta_net,
          route,
          {glu<Silu>, glu<Gelu>, glu<Clamped>},
          {apply_gate<GATE_SIGMOID>, apply_gate<GATE_SOFTPLUS>},
          delta_gates,
          combine,
          add,
          inject,
          keyed_values,
          mean_halves,
          max_of,
          span_total};
}

}  // namespace STOKER_ISA
