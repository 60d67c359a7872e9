"""A table of embeddings for the last few tokens, looked up by their hashes: as data, and from a
file. Read row by row: the table is larger than the rest of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.gguf.formats import BF16, F16, F32
from engine.plan.source import PlanSource
from engine.plan.tensors import MatrixRef, TensorRef

CONV_TAPS = 4  # inputs of the convolution
APART = 3  # tokens from one of them to the next: the length of the longest n-gram


@dataclass(frozen=True, slots=True)
class NgramSpec:
    """For n = 2 .. len(multipliers) each of `heads` hashes of the last n tokens names a row.

    m_n is the exclusive or of ctx_j * multipliers[j] modulo 2^64 over j < n, ctx_j the token j
    before this one; behind the start, or from an `end` token back, all count as `end`. Hash h of n
    reads the row m_n mod sizes[i] + offsets[i], i = (n - 2) * heads + h.

    The rows of a token, one behind the other, give a key for each stream and one value. Stream by
    stream G = value * sigmoid(signed root of (normed key . normed stream) / sqrt(embd)), and the
    stream grows by G + SiLU(convolution of the normed G). The form of Qwen4-Exp
    (Qwen4ExpTextPLELayer of transformers).
    """

    table: TensorRef  # (rows, width), which stays on the disk
    heads: int  # hashes for each n
    multipliers: tuple[int, ...]
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    end: int  # token id
    key: MatrixRef  # (streams * embd, reads * width)
    value: MatrixRef  # (embd, reads * width)
    key_norm: TensorRef  # (streams * embd,) F32, as those that follow
    query_norm: TensorRef
    conv_norm: TensorRef
    conv: TensorRef  # (streams * embd, CONV_TAPS) F32, F16 or BF16, the newest token last

    @property
    def reads(self) -> int:
        """Rows of the table that a token reads."""
        return len(self.sizes)

    @property
    def row_bytes(self) -> int:
        return self.table.nbytes // self.table.rows

    @property
    def tensors(self) -> tuple[MatrixRef, ...]:
        """All but the table."""
        return (self.key, self.value, self.key_norm, self.query_norm, self.conv_norm, self.conv)

    @property
    def widths(self) -> tuple[int, ...]:
        """float32 values per token of the rows, keys, queries, the value and G."""
        wide = self.key.rows
        return (self.reads * self.table.cols, wide, wide, self.value.rows, wide)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """What it remembers of a timeline, four bytes each: the convolution's last inputs, and the
        last tokens."""
        return ((CONV_TAPS - 1) * APART, self.key.rows), (len(self.multipliers) - 1,)


def read_ngrams(source: PlanSource, embd: int, streams: int, layers: int) -> dict[int, NgramSpec]:
    """By layer; one at most, since files have one table."""
    if not source.has("ple.layers"):
        return {}
    found = source.integers("ple.layers")
    if len(found) > 1:
        raise _unsupported(source, "ple.layers", "one layer")
    if not all(0 <= layer < layers for layer in found):
        raise source.bad_key("ple.layers", f"a layer below {layers}")
    return {layer: _read(source, layer, embd, streams) for layer in found}


def _read(source: PlanSource, layer: int, embd: int, streams: int) -> NgramSpec:
    longest, heads = source.count("ple.ngram_size"), source.count("ple.heads_per_ngram")
    if longest != APART:
        raise _unsupported(source, "ple.ngram_size", str(APART))
    if source.count("ple.conv_kernel") != CONV_TAPS:
        raise _unsupported(source, "ple.conv_kernel", str(CONV_TAPS))
    width, reads = source.count("embedding_length_per_layer_input"), (longest - 1) * heads
    table = source.rows("per_layer_token_embd.weight", width)
    sizes = source.integers("ple.head_vocab_sizes", reads)
    offsets = source.integers("ple.head_offsets", reads)
    for size, offset in zip(sizes, offsets, strict=True):
        if size == 0 or offset + size > table.rows:
            key = "ple.head_vocab_sizes"
            raise source.bad_key(key, f"parts of the {table.rows} rows of tensor {table.name!r}")
    name, wide = f"blk.{layer}.ple_", streams * embd
    return NgramSpec(
        table=table,
        heads=heads,
        multipliers=tuple(source.integers("ple.layer_multipliers", longest)),
        sizes=tuple(sizes),
        offsets=tuple(offsets),
        end=source.file.get_int(source.key("ple.eos_token_id")),
        key=source.tensor(f"{name}key.weight", (wide, reads * width)),
        value=source.tensor(f"{name}value.weight", (embd, reads * width)),
        key_norm=source.vector(f"{name}norm_key.weight", wide),
        query_norm=source.vector(f"{name}norm_query.weight", wide),
        conv_norm=source.vector(f"{name}norm_conv.weight", wide),
        conv=source.tensor(f"{name}conv1d.weight", (wide, CONV_TAPS), (F32, F16, BF16)),
    )


def _unsupported(source: PlanSource, key: str, expected: str) -> UnsupportedModelError:
    found = source.file.metadata.describe(source.key(key))
    return UnsupportedModelError(
        f"{source.file.file_name}: key {source.key(key)!r} is {found}, Stoker implements {expected}"
    )
