"""The part of a layer that looks at other tokens, read from the file: attention or DeltaNet."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.gguf.formats import F32
from engine.plan.attentions import Attentions
from engine.plan.families.family import Family
from engine.plan.latent_attentions import LatentAttentions
from engine.plan.rows import interleaved
from engine.plan.source import PlanSource
from engine.plan.spec import CONV_TAPS, AttentionSpec, DeltaNetSpec, LatentAttentionSpec
from engine.plan.tensors import MatrixRef, RowsRef, TensorRef

FULL_INTERVAL = 4  # llama.cpp's default: of so many layers the last one is attention


@dataclass(frozen=True, slots=True)
class _Delta:
    """What the keys say about every DeltaNet."""

    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    recurrent: list[bool]  # per layer


class Mixers:
    """`read` gives the mixer of a layer; `blocks` is the number of layers in the file."""

    def __init__(self, source: PlanSource, family: Family, embd: int, blocks: int) -> None:
        self._source, self._family, self._embd = source, family, embd
        self._attentions: Attentions | LatentAttentions
        if family.latent_attention:
            self._attentions = LatentAttentions(source, family, embd)
        else:
            self._attentions = Attentions(source, family, embd, blocks)
        self._delta = _read_delta(source, blocks) if family.delta_net else None

    def read(self, layer: int) -> AttentionSpec | LatentAttentionSpec | DeltaNetSpec:
        if self._delta and self._delta.recurrent[layer]:
            return self._delta_net(layer, self._delta)
        return self._attentions.read(layer)

    def _delta_net(self, layer: int, d: _Delta) -> DeltaNetSpec:
        source, block = self._source, f"blk.{layer}."
        keys, values = d.k_heads * d.k_dim, d.v_heads * d.v_dim
        channels = 2 * keys + values
        qkv: MatrixRef
        gate: MatrixRef
        alpha: MatrixRef
        beta: MatrixRef
        if source.has_tensor(block + "ssm_in.weight"):
            whole = self._matrix(block + "ssm_in.weight", channels + values)
            of_head = values // d.k_heads
            parts = interleaved(whole, d.k_heads, (d.k_dim, d.k_dim, of_head, of_head))
            q, k, v, gate = parts
            qkv = RowsRef(whole, q.spans + k.spans + v.spans)
        else:
            qkv = self._matrix(block + "attn_qkv.weight", channels)
            gate = self._matrix(block + "attn_gate.weight", values)
        if source.has_tensor(block + "ssm_ba.weight"):
            whole = self._matrix(block + "ssm_ba.weight", 2 * d.v_heads)
            share = d.v_heads // d.k_heads
            beta, alpha = interleaved(whole, d.k_heads, (share, share))
        else:
            alpha = self._matrix(block + "ssm_alpha.weight", d.v_heads)
            beta = self._matrix(block + "ssm_beta.weight", d.v_heads)
        return DeltaNetSpec(
            k_heads=d.k_heads,
            v_heads=d.v_heads,
            k_dim=d.k_dim,
            v_dim=d.v_dim,
            tiled=self._family.tiled,
            qkv=qkv,
            gate=gate,
            alpha=alpha,
            beta=beta,
            conv=source.tensor(block + "ssm_conv1d.weight", (channels, CONV_TAPS), (F32,)),
            rate=source.vector(block + "ssm_a", d.v_heads),
            bias=source.vector(block + "ssm_dt.bias", d.v_heads),
            norm=source.vector(block + "ssm_norm.weight", d.v_dim),
            output=source.tensor(block + "ssm_out.weight", (self._embd, values)),
            sigmoid=self._family.delta_sigmoid,
        )

    def _matrix(self, name: str, rows: int) -> TensorRef:
        return self._source.tensor(name, (rows, self._embd))


def _read_delta(source: PlanSource, blocks: int) -> _Delta:
    taps = source.count("ssm.conv_kernel")
    if taps != CONV_TAPS:
        raise UnsupportedModelError(
            f"{source.file.file_name}: key {source.key('ssm.conv_kernel')!r} is {taps}, "
            f"Stoker implements {CONV_TAPS}"
        )
    k_heads, v_heads = source.count("ssm.group_count"), source.count("ssm.time_step_rank")
    if v_heads % k_heads:
        raise source.bad_key("ssm.time_step_rank", f"a multiple of the {k_heads} key heads")
    inner = source.count("ssm.inner_size")
    if inner % v_heads:
        raise source.bad_key("ssm.inner_size", f"a multiple of the {v_heads} value heads")
    interval = source.count("full_attention_interval", FULL_INTERVAL)
    recurrent = [(layer + 1) % interval != 0 for layer in range(blocks)]
    if source.has("attention.recurrent_layers"):
        recurrent = source.flags("attention.recurrent_layers", blocks)
    return _Delta(k_heads, v_heads, source.count("ssm.state_size"), inner // v_heads, recurrent)
