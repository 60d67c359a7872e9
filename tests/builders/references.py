"""The `transformers` model that a GGUF file describes, with the weights of the file.

llama.cpp's converter changes some of them on the way into the file; here is the way back, written
from the model definitions of `transformers`:

    norms            the file holds 1 + w (Qwen3-Next, Qwen3.5; not the norm inside a DeltaNet)
    ssm_a            -exp(A_log)
    ssm_conv1d       (channels, taps) of (channels, 1, taps)
    value heads      of Qwen3.5 in tiled order: head p of the file is head (p mod Hk) r + p div Hk,
                     r = Hv / Hk; rows of what makes them, columns of what reads them
    experts          gate and up are two tensors
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers

from tests.builders.blocks import Floats
from tests.builders.model_file import Geometry, rope_sections

Weights = dict[str, Floats]  # by GGUF name

CLASSES = {
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "qwen35": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
    "qwen35moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM"),
    "qwen3moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
    "qwen3next": ("Qwen3NextConfig", "Qwen3NextForCausalLM"),
}


def reference_model(g: Geometry, weights: Weights) -> Any:
    """The model, ready to run. Its types are too loose for a strict check."""
    config, model_class = (getattr(transformers, name) for name in CLASSES[g.arch])
    model: Any = model_class(config(**_options(g)))
    model.eval()
    state = {name: torch.from_numpy(v.copy()) for name, v in _state(g, weights).items()}
    if g.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    return model


def _options(g: Geometry) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": g.rope_base}
    options: dict[str, Any] = {
        "vocab_size": g.vocab,
        "hidden_size": g.embd,
        "intermediate_size": g.ff,
        "num_hidden_layers": g.layers,
        "num_attention_heads": g.heads,
        "num_key_value_heads": g.kv_heads,
        "head_dim": g.head_dim,
        "rms_norm_eps": g.norm_eps,
        "max_position_embeddings": g.context,
        "rope_parameters": rope,
        "tie_word_embeddings": g.tied,
        "attn_implementation": "eager",
    }
    if g.rotated:
        rope["partial_rotary_factor"] = g.rotated / g.head_dim
    if g.arch.startswith("qwen35"):
        rope["mrope_section"], rope["mrope_interleaved"] = rope_sections(g)[:3], True
    if g.experts:
        options |= {
            "moe_intermediate_size": g.ff,
            "shared_expert_intermediate_size": g.shared_ff,
            "num_experts": g.experts,
            "num_experts_per_tok": g.used,
            "norm_topk_prob": True,
            "experts_implementation": "eager",
        }
    if g.hybrid:
        options |= {
            "linear_num_key_heads": g.k_heads,
            "linear_num_value_heads": g.v_heads,
            "linear_key_head_dim": g.k_dim,
            "linear_value_head_dim": g.v_dim,
            "full_attention_interval": g.interval,
        }
    return options


def _state(g: Geometry, weights: Weights) -> Weights:
    """The weights under the names of the `transformers` class."""
    state = {
        "model.embed_tokens.weight": weights["token_embd.weight"],
        "model.norm.weight": _norm(g, weights["output_norm.weight"]),
    }
    if not g.tied:
        state["lm_head.weight"] = weights["output.weight"]
    for layer in range(g.layers):
        block = f"blk.{layer}."
        own = {n.removeprefix(block): w for n, w in weights.items() if n.startswith(block)}
        theirs = {"input_layernorm.weight": _norm(g, own["attn_norm.weight"])}
        second = "post_attention_norm.weight" if g.hybrid else "ffn_norm.weight"
        theirs["post_attention_layernorm.weight"] = _norm(g, own[second])
        theirs |= _delta_net(g, own) if g.recurrent(layer) else _attention(g, own)
        theirs |= _feed_forward(g, own)
        state |= {f"model.layers.{layer}.{name}": value for name, value in theirs.items()}
    return state


def _norm(g: Geometry, values: Floats) -> Floats:
    return values - np.float32(1) if g.hybrid else values


def _attention(g: Geometry, own: Weights) -> Weights:
    out = {
        f"self_attn.{t}_proj.weight": own[f"attn_{n}.weight"]
        for t, n in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))
    }
    for name in ("q_norm", "k_norm"):
        out[f"self_attn.{name}.weight"] = _norm(g, own[f"attn_{name}.weight"])
    return out


def _feed_forward(g: Geometry, own: Weights) -> Weights:
    def one(place: str, suffix: str) -> Weights:
        return {
            f"{place}{part}_proj.weight": own[f"ffn_{part}{suffix}.weight"]
            for part in ("gate", "up", "down")
        }

    if not g.experts:
        return one("mlp.", "")
    gate, up, down = (own[f"ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    out = {
        "mlp.gate.weight": own["ffn_gate_inp.weight"],
        "mlp.experts.gate_up_proj": np.concatenate([gate, up], axis=1),
        "mlp.experts.down_proj": down,
    }
    if g.shared_ff:
        out |= one("mlp.shared_expert.", "_shexp")
        out["mlp.shared_expert_gate.weight"] = own["ffn_gate_inp_shexp.weight"][None]
    return out


def _delta_net(g: Geometry, own: Weights) -> Weights:
    keys = 2 * g.k_heads * g.k_dim
    taps = own["ssm_conv1d.weight"]
    out = {
        "conv1d.weight": np.concatenate([taps[:keys], _heads(g, taps[keys:])])[:, None],
        "dt_bias": _heads(g, own["ssm_dt.bias"]),
        "A_log": np.log(-_heads(g, own["ssm_a"])),
        "norm.weight": own["ssm_norm.weight"],
        "out_proj.weight": np.ascontiguousarray(_heads(g, own["ssm_out.weight"].T).T),
    }
    if g.arch == "qwen3next":
        out["in_proj_ba.weight"] = own["ssm_ba.weight"]
        out["in_proj_qkvz.weight"] = own["ssm_in.weight"] if g.joined else _joined(g, own)
    else:
        qkv = own["attn_qkv.weight"]
        out["in_proj_qkv.weight"] = np.concatenate([qkv[:keys], _heads(g, qkv[keys:])])
        out["in_proj_z.weight"] = _heads(g, own["attn_gate.weight"])
        out["in_proj_a.weight"] = _heads(g, own["ssm_alpha.weight"])
        out["in_proj_b.weight"] = _heads(g, own["ssm_beta.weight"])
    return {f"linear_attn.{name}": value for name, value in out.items()}


def _heads(g: Geometry, rows: Floats) -> Floats:
    """Rows of value heads in the order of `transformers`."""
    if g.arch == "qwen3next":
        return rows
    heads = rows.reshape(g.v_heads, -1, *rows.shape[1:])
    out = np.empty_like(heads)
    for p in range(g.v_heads):
        out[p % g.k_heads * (g.v_heads // g.k_heads) + p // g.k_heads] = heads[p]
    return out.reshape(rows.shape)


def _joined(g: Geometry, own: Weights) -> Floats:
    """For each key head its queries, keys, values and gate."""
    keys = g.k_heads * g.k_dim
    qkv = own["attn_qkv.weight"]
    parts = (qkv[:keys], qkv[keys : 2 * keys], qkv[2 * keys :], own["attn_gate.weight"])
    by_head = [part.reshape(g.k_heads, -1, g.embd) for part in parts]
    return np.concatenate(by_head, axis=1).reshape(-1, g.embd)
