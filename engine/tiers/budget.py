"""Byte arithmetic: what a memory budget means for one model. Pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from engine.errors import BudgetError, BudgetTooLargeError, SettingError
from engine.plan.indexer import IndexerSpec
from engine.plan.ngrams import NgramSpec
from engine.plan.spec import AttentionSpec, ExpertsSpec, ExpertStack, LatentAttentionSpec, ModelPlan
from engine.plan.tensors import TensorRef
from engine.settings import EngineSettings, parse_bytes, parse_share
from engine.tiers.hardware import MemoryReading
from engine.tiers.policy import Experts
from engine.tiers.pressure import roomy
from engine.tiers.raw_file import BLOCK

ALIGN = 64  # bytes of a cache line
DIRECT_BYTES = 16 * BLOCK  # a matrix that is worth the gap in front of it
HUGE_PAGE = 2 << 20  # bytes; the slots of each size end within one (see arena.py)
# What the process takes beyond what it had when it planned: code that runs first then, stacks and
# allocators of threads, tables of experts. Measured.
GROWTH = 6 << 20
KV_BLOCKS = {"f16": (1, 2), "q8_0": (32, 34)}  # values of a block of keys or values, and its bytes
CHUNK = 64  # positions that attention takes at a time; a cache holds whole chunks
SPAN = 512  # positions that attention of at most SPLIT_ROWS tokens takes as a part of its own
SPLIT_ROWS = 8
STATES_BYTES = 4 << 20  # of what such parts give, or three of them
SNAPSHOTS = 4  # earlier states of recurrent layers that are kept, beside the running one
WINDOW_SNAPSHOTS = 2  # where layers with a window have some too: they are larger
# Of the experts' inner rows: what is written of them (gate and up in float32, the product in int8),
# and what the largest part of a layer's experts takes where they come in parts.
INNER_USED = 9.5 / 15
INNER_PART = 0.5
UNEVEN = 1.05  # times their share of the arena: the most that slots of one size come to take
CTX_STEP = 256  # tokens: contexts that are proposed are multiples
AUTO_CONTEXT = 32768  # tokens, unless the model or the memory says less
ROW_CACHE = 32 << 20  # bytes, for rows of a table that stays on the disk
SPARE_SLOTS = 16  # of the largest size
LEAST_RESERVE = (4 << 30) // 5  # bytes, of an automatic one


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Offsets of the three matrices in the slot of one expert, and the size of the slot, bytes.

    All three lie `start(expert)` bytes further on.
    """

    gate: int
    up: int
    down: int
    size: int
    along: ExpertStack | None = None  # whose place in the file `start` follows

    @property
    def offsets(self) -> tuple[int, int, int]:
        return (self.gate, self.up, self.down)

    def start(self, expert: int) -> int:
        """Where in its slot `expert` begins: the address for kernels is slot + start."""
        if self.along is None:
            return 0
        return (self.along.place(expert)[1] - self.along.place(0)[1]) % BLOCK


def slot_layout(experts: ExpertsSpec) -> SlotLayout:
    """gate | up | down, each at an offset that equals its offset in the file modulo BLOCK: there
    direct reads land without a copy.

    From one expert to the next the file's offsets grow by the bytes of a matrix: nearly always
    whole blocks, else `start` follows that of gate, and of up. Small matrices lie on cache lines
    without gaps, which would cost more memory than the copies cost time.
    """
    direct = min(stack.nbytes for stack in experts.stacks) >= DIRECT_BYTES
    offsets, end = [], 0
    for stack in experts.stacks:
        offsets.append(end + (stack.place(0)[1] - end) % BLOCK if direct else _align(end))
        end = offsets[-1] + stack.nbytes
    gate, up, down = offsets
    moves = direct and (experts.gate.stride % BLOCK != 0 or len(experts.gate.tensors) > 1)
    along = experts.gate if moves else None
    return SlotLayout(gate, up, down, _align(end + (BLOCK if moves else 0)), along)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How a budget divides. `arena` is what resident experts may take; all sizes in bytes."""

    context: int  # tokens
    dense: int
    kv: int  # keys, values and recurrent states, and copies of them
    scratch: int
    reserve: int  # the process itself: interpreter, libraries, vocabulary; and pages partly used
    arena: int
    arena_full: int  # the arena that holds every expert
    arena_most: int  # what it may take at any budget
    ram: int | None  # the largest budget that `--ram` allows; None: any
    reserve_asked: int | None  # what `--reserve` says; None: automatic
    left_free: int = 0  # main memory that other programs are left, outside the budget
    rows: int = 0  # what is kept of tables that stay on the disk
    fixed: int = 0  # of kv: what does not grow with the context

    @property
    def least(self) -> int:
        """The smallest budget that works: no expert is resident."""
        return self.dense + self.kv + self.scratch + self.rows + self.reserve

    @property
    def most(self) -> int:
        return self.least + self.arena_full

    @property
    def budget(self) -> int:
        return self.least + self.arena

    def slots(self, experts: int) -> int:
        """How many of the model's `experts` the arena holds."""
        return self.arena * experts // self.arena_full if experts else 0


def plan_memory(
    plan: ModelPlan,
    budget: str,
    context: int,
    chunk: int,
    kv: str,
    memory: MemoryReading,
    slots: int = 0,
    ram: str = "auto",
    reserve: str = "auto",
) -> MemoryPlan:
    """Divide `budget` (auto, a size, or a share of the expert bytes) for `plan`; `kv`, `ram` and
    `reserve` as the flags.

    At most `slots` experts are resident; 0: as many as fit. `context` 0 asks for the model's own,
    bounded by AUTO_CONTEXT and an eighth of the memory. Raises SettingError for an unreadable
    size or heads that `kv` cannot hold, BudgetError for a budget below `least` or above `ram`.
    """
    most = None if ram == "auto" else parse_bytes(ram, "--ram")
    if kv != "f16" and _latents(plan):
        raise SettingError(
            f"--kv is {kv}: a model with latent attention keeps its rows in f16", "Use --kv f16"
        )
    for x in _attentions(plan):
        if x.head_dim % KV_BLOCKS[kv][0]:
            raise SettingError(
                f"--kv is {kv}: heads of {x.head_dim} values are no multiple of {KV_BLOCKS[kv][0]}",
                "Use --kv f16",
            )
    if context == 0:
        context = min(plan.context, AUTO_CONTEXT)
        room = memory.available if most is None else min(memory.available, most)
        while context > 1024 and kv_bytes(plan, context, chunk, kv) > room // 8:
            context //= 2
    full = sum(size * count for size, count in _slot_sizes(plan).items())
    copies = snapshots(plan, context, chunk) * copy_bytes(plan, context, chunk, kv)
    fixed = state_bytes(plan) + copies
    parts = MemoryPlan(
        context=context,
        dense=sum(ref.nbytes for ref in plan.dense_tensors),
        kv=kv_bytes(plan, context, chunk, kv) + fixed,
        fixed=fixed + ring_bytes(plan, context, chunk, kv),
        scratch=scratch_bytes(plan, context, chunk)
        + staging_slots(plan) * largest_slot(plan)
        + spare_bytes(plan),
        rows=sum(row_places(x.table) * (x.row_bytes + 8) for x in _ngrams(plan)),
        reserve=memory.own + GROWTH + sum(_page_loss(*each) for each in _slot_sizes(plan).items()),
        arena=0,
        arena_full=full,
        arena_most=min(full, slots * largest_slot(plan)) if slots else full,
        ram=most,
        reserve_asked=None if reserve == "auto" else parse_bytes(reserve, "--reserve"),
    )
    return with_budget(parts, budget, memory)


def expected_peak(plan: ModelPlan, memory: MemoryPlan, tokens: int, step: int) -> int:
    """Bytes that the whole process will take at most, once `tokens` of the context were used and
    the longest step over a prompt had `step` tokens.

    That is the budget less what nothing was written to: memory that is only set aside takes none.
    The experts' inner rows are those of the experts that are computed together: all of a layer when
    they are resident, else parts of them.
    """
    share = memory.arena / memory.arena_full if memory.arena_full else 1.0
    # The huge page in which the slots of a size end is there as a whole. How many slots of a size
    # there are varies a little; where they once ended, that page stays.
    pages = sum(
        int(_pages(size) * count * min(share * UNEVEN, 1)) % HUGE_PAGE or HUGE_PAGE
        for size, count in _slot_sizes(plan).items()
    )
    scratch = scratch_bytes(plan, memory.context, step)
    scratch -= int(4 * step * _inner(plan) * (1 - INNER_USED * max(share, INNER_PART)))
    if share < 1:
        scratch += staging_slots(plan) * largest_slot(plan)
        scratch += spare_bytes(plan) if share else 0
    kv = memory.fixed + (memory.kv - memory.fixed) * tokens // memory.context
    return memory.budget - pages - (memory.scratch - scratch) - (memory.kv - kv)


def plan_for(plan: ModelPlan, settings: EngineSettings, memory: MemoryReading) -> MemoryPlan:
    """`plan_memory` as the user has set it."""
    x = settings
    return plan_memory(plan, x.budget, x.ctx, x.chunk, x.kv, memory, x.slots, x.ram, x.reserve)


def with_budget(parts: MemoryPlan, budget: str, memory: MemoryReading) -> MemoryPlan:
    """The same parts with the arena that `budget` leaves. Raises as `plan_memory`.

    An automatic budget takes what is available now, at most `ram`, and leaves the reserve with some
    room above it: about a tenth of the machine, at least 1 GiB, if that is automatic too.
    """
    share = parse_share(budget, "--budget")
    if budget == "auto":
        left = memory.available - roomy(_reserve(parts, memory))
        arena = max((left if parts.ram is None else min(left, parts.ram)) - parts.least, 0)
    elif share is not None:
        arena = int(share * parts.arena_full)
    else:
        size = parse_bytes(budget, "--budget")
        if size < parts.least:
            missing = parts.least - size
            raise BudgetError(
                f"A budget of {size:,} bytes misses {missing:,} bytes: dense weights "
                f"{parts.dense:,}, {parts.context:,} tokens of context {parts.kv:,} and scratch "
                f"{parts.scratch + parts.rows:,} must be resident",
                f"Use --budget {parts.least} or more{_or_context(parts, missing)}",
                missing,
                parts.least,
            )
        arena = size - parts.least
    plan = replace(parts, arena=min(arena, parts.arena_most))
    _check_fits(plan, budget, memory)
    left = _reserve(plan, memory)
    if budget != "auto" and plan.reserve_asked is None:
        # It defends what others come to need later, and does not overrule the choice.
        left = min(left, max((memory.available - plan.budget) // 2, memory.total // 64))
    return replace(plan, left_free=left)


def _reserve(parts: MemoryPlan, memory: MemoryReading) -> int:
    if parts.reserve_asked is not None:
        return parts.reserve_asked
    return max(memory.total * 2 // 25, LEAST_RESERVE)


def _check_fits(plan: MemoryPlan, budget: str, memory: MemoryReading) -> None:
    """Raise BudgetError if `plan` is more than `--ram` allows or the machine has."""
    if plan.ram is not None and plan.budget > plan.ram:
        what, need, other = f"--budget {budget}", plan.budget, f"--budget {plan.ram} or less"
        if plan.ram < plan.least:
            what, need, other = "what must be resident", plan.least, "a smaller --ctx"
        raise BudgetError(
            f"--ram {plan.ram} misses {need - plan.ram:,} bytes for {what}, {need:,}: where the "
            "processor computes, the budget is main memory",
            f"Use --ram {need} or more, or {other}",
            need - plan.ram,
            plan.least,
        )
    missing = plan.budget - memory.available
    if missing > 0:
        nearest = f"Use --budget {memory.available} or less"
        if memory.available < plan.least:
            nearest = f"Free {plan.least - memory.available:,} bytes for --budget {plan.least}"
        raise BudgetTooLargeError(
            f"--budget {budget} takes {plan.budget:,} bytes, {missing:,} more than the "
            f"{memory.available:,} that are free",
            nearest + _or_context(plan, plan.least - memory.available),
            missing,
            plan.least,
        )


def _or_context(parts: MemoryPlan, missing: int) -> str:
    """What else helps when `missing` bytes are missing to the least budget, if anything: the
    largest context that leaves them."""
    if missing <= 0:
        return ", or close other programs"
    grows = parts.kv - parts.fixed
    context = (grows - missing) * parts.context // max(grows, 1) // CTX_STEP * CTX_STEP
    return f", or --ctx {context} or less" if context > 0 else ""


def kv_bytes(plan: ModelPlan, context: int, chunk: int, kv: str) -> int:
    """Keys and values of `context` tokens over all layers, stored as `kv`, and the raw keys of
    indexers, in half precision; for steps over at most `chunk` tokens."""
    index = sum(2 * context * x.dim for x in _indexers(plan))
    rows = sum(x.row for x in _latents(plan))
    pairs = sum(
        min(kv_rows(x, context, chunk), context) * _pair_bytes(x, kv) for x in _attentions(plan)
    )
    return index + pairs + KV_BLOCKS["f16"][1] * context * rows


def kv_rows(x: AttentionSpec, context: int, chunk: int) -> int:
    """Positions that the cache of a layer holds. With a window those that the steps to come see,
    and one step more, if that and copies of it (see TimelineState) take less than all positions."""
    ring = whole_chunks(x.window - 1 + chunk)
    if x.window and ring + WINDOW_SNAPSHOTS * copied_rows(x.window) < context:
        return ring
    return whole_chunks(context)


def copied_rows(window: int) -> int:
    """Positions of the chunks that a window may touch."""
    return whole_chunks(window - 1) + CHUNK


def ring_bytes(plan: ModelPlan, context: int, chunk: int, kv: str) -> int:
    """Those of `kv_bytes` in layers that hold a window only."""
    rings = _rings(plan, context, chunk)
    return sum(kv_rows(x, context, chunk) * _pair_bytes(x, kv) for x in rings)


def copy_bytes(plan: ModelPlan, context: int, chunk: int, kv: str) -> int:
    """A copy of all that cannot be cut off behind a position."""
    rings = _rings(plan, context, chunk)
    return state_bytes(plan) + sum(copied_rows(x.window) * _pair_bytes(x, kv) for x in rings)


def snapshots(plan: ModelPlan, context: int, chunk: int) -> int:
    """How many such copies are kept."""
    return WINDOW_SNAPSHOTS if _rings(plan, context, chunk) else SNAPSHOTS


def whole_chunks(rows: int) -> int:
    return -(-rows // CHUNK) * CHUNK


def _rings(plan: ModelPlan, context: int, chunk: int) -> list[AttentionSpec]:
    return [x for x in _attentions(plan) if kv_rows(x, context, chunk) < context]


def _pair_bytes(x: AttentionSpec, kv: str) -> int:
    """A key and a value of all heads of a layer."""
    values, size = KV_BLOCKS[kv]
    return 2 * x.kv_heads * x.head_dim // values * size


def _attentions(plan: ModelPlan) -> list[AttentionSpec]:
    return [x.mixer for x in plan.layers if isinstance(x.mixer, AttentionSpec)]


def _latents(plan: ModelPlan) -> list[LatentAttentionSpec]:
    return [x.mixer for x in plan.layers if isinstance(x.mixer, LatentAttentionSpec)]


def _indexers(plan: ModelPlan) -> list[IndexerSpec]:
    return [x.indexer for x in _attentions(plan) if x.indexer]


def _ngrams(plan: ModelPlan) -> list[NgramSpec]:
    return [x.ngrams for x in plan.layers if x.ngrams]


def state_bytes(plan: ModelPlan) -> int:
    """What the recurrent layers remember of one timeline, whatever its length: float32."""
    return 4 * sum(math.prod(shape) for x in plan.layers for shape in x.state_shapes)


def row_places(table: TensorRef) -> int:
    """Rows of `table` that are kept in memory."""
    return max(min(table.rows, ROW_CACHE // (table.nbytes // table.rows + 8)), 1)


def scratch_bytes(plan: ModelPlan, context: int, chunk: int) -> int:
    """float32 activations of a step over `chunk` tokens, and the tables of rotations.

    Beside the rows that live across blocks, a block holds those that its spec names; the experts'
    inner rows (gate, up and their product) are the kernels' own and grow by a quarter more than
    they need.
    """
    widest = max(sum(widths) for widths in plan.cuts)
    ids = plan.most_used * len(plan.expert_layers)
    rows = sum(plan.row_widths) + widest + _inner(plan) + ids
    read = sum(x.reads * (x.row_bytes + 4) for x in _ngrams(plan))
    floats = chunk * rows + plan.vocab + context * sum(x.dims for x in plan.ropes)
    sparse = _sparse_bytes(plan, context)
    return 4 * floats + chunk * read + sparse + _split_bytes(plan, context, chunk)


def _sparse_bytes(plan: ModelPlan, context: int) -> int:
    """What attention over chosen positions works with: keys of blocks in every layer; and the
    kernels' own, which grow by a quarter more than they need: products of 16 queries with them, and
    keys and values of the chosen positions."""
    chosen = [(x, x.indexer) for x in _attentions(plan) if x.indexer]
    keys = sum(context // x.ratio * 4 * x.dim for _, x in chosen)
    products = max((context // x.ratio * 64 * x.heads for _, x in chosen), default=0)
    copied = max((4 * (i.chosen + 63) * x.kv_heads * x.head_dim for x, i in chosen), default=0)
    return keys + (products + copied) * 5 // 4


def _split_bytes(plan: ModelPlan, context: int, chunk: int) -> int:
    """What attention of a few queries works with where it is split along the keys: a record for
    each of them, head and span, of as many spans as are held (cpu/sequence.cpp); a quarter more
    than it needs."""
    outs = [x.heads * (16 + x.head_dim) for x in _attentions(plan)]
    outs += [x.heads * (16 + x.latent) for x in _latents(plan)]
    span = 4 * min(chunk, SPLIT_ROWS) * max(outs, default=0)
    spans = -(-context // SPAN)
    return min(spans * span, max(STATES_BYTES, 3 * span)) * 5 // 4 if spans > 1 else 0


def _inner(plan: ModelPlan) -> int:
    """Values of the experts' inner rows of one token, as they are set aside."""
    return max((x.used * x.ff for x in plan.expert_layers.values()), default=0) * 3 * 5 // 4


def staging_slots(plan: ModelPlan) -> int:
    """Slots that hold experts only while one layer runs: a token's experts, at least 8, and as many
    for guesses at the next layer's."""
    return 2 * max(8, plan.most_used) if plan.expert_layers else 0


def spare_bytes(plan: ModelPlan) -> int:
    """What the arena may keep of slots that are of no use at the moment (see `Arena`)."""
    sizes = {slot_layout(x).size for x in plan.expert_layers.values()}
    return SPARE_SLOTS * max(sizes) if len(sizes) > 1 else 0


def expert_slots(plan: ModelPlan) -> Experts:
    """The sizes of all slots, as policies know a model."""
    sizes = np.zeros((len(plan.layers), plan.most_experts), np.int64)
    for layer, x in plan.expert_layers.items():
        sizes[layer, : x.count] = slot_layout(x).size
    return Experts(sizes, plan.most_used)


def token_dense_bytes(plan: ModelPlan) -> int:
    """Dense weights that one token of an answer reads: all but the embeddings of other tokens."""
    dense = sum(ref.nbytes for ref in plan.dense_tensors)
    if plan.output.name != plan.token_embedding.name:
        dense -= plan.token_embedding.nbytes
    return dense


def _slot_sizes(plan: ModelPlan) -> Counter[int]:
    """Experts by the size of their slots."""
    sizes = Counter(expert_slots(plan).sizes.ravel().tolist())
    sizes.pop(0, None)  # layers may have fewer experts than the widest
    return sizes


def _page_loss(size: int, count: int) -> int:
    """Bytes that `count` slots of `size` bytes may take beyond their own: the rest of each slot's
    last page, and one huge page that is partly used."""
    return (_pages(size) - size) * count + HUGE_PAGE


def _pages(n: int) -> int:
    return -(-n // BLOCK) * BLOCK


def largest_slot(plan: ModelPlan) -> int:
    return max((slot_layout(x).size for x in plan.expert_layers.values()), default=0)


def _align(n: int) -> int:
    return (n + ALIGN - 1) // ALIGN * ALIGN
