"""Budget arithmetic by hand-made numbers, and what is said when it does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.errors import BudgetError, SettingError
from engine.plan.spec import AttentionSpec, ModelPlan
from engine.tiers.budget import (
    GROWTH,
    HUGE_PAGE,
    copy_bytes,
    expected_peak,
    kv_bytes,
    largest_slot,
    plan_memory,
    ring_bytes,
    scratch_bytes,
    slot_layout,
    with_budget,
)
from engine.tiers.hardware import MemoryReading
from tests.engine.tiers.conftest import EXPERTS, LAYERS

MEMORY = MemoryReading(total=1 << 34, available=1 << 33)


def test_parts_add_up(plan: ModelPlan) -> None:
    memory = plan_memory(plan, "50%", 0, 16, "f16", MEMORY)
    assert memory.context == 100
    # Per layer: keys and values of 1 head x 16 values x 2 bytes x 100 tokens.
    assert memory.kv == LAYERS * 2 * 16 * 2 * 100
    q8 = 34  # bytes of 32 values
    small = 2 * (64 * q8) + 32 * 2 * q8
    large = 2 * (64 * q8) + 32 * 64 * 4
    assert memory.arena_full == EXPERTS * (2 * small + large)
    assert memory.arena == memory.arena_full // 2
    assert memory.dense == sum(t.nbytes for t in plan.dense_tensors)
    parts = memory.dense + memory.kv + memory.scratch + memory.reserve + memory.arena
    assert memory.budget == parts
    # The process itself, what it grows by, and a huge page for each of the two sizes of slots; the
    # rest of the last page of every slot counts too.
    taken = plan_memory(plan, "50%", 0, 16, "f16", replace(MEMORY, own=50 << 20)).reserve
    assert taken == memory.reserve + (50 << 20)
    lost = 2 * EXPERTS * (-small % 4096) + EXPERTS * (-large % 4096)
    assert memory.reserve == GROWTH + 2 * HUGE_PAGE + lost
    assert memory.most == memory.least + memory.arena_full


def test_a_q8_0_cache_takes_34_bytes_for_32_values(plan: ModelPlan) -> None:
    with pytest.raises(SettingError, match="heads of 16 values"):
        plan_memory(plan, "50%", 0, 16, "q8_0", MEMORY)
    layers = []
    for layer in plan.layers:
        assert isinstance(layer.mixer, AttentionSpec)
        layers.append(replace(layer, mixer=replace(layer.mixer, head_dim=64)))
    wide = replace(plan, layers=tuple(layers))
    assert kv_bytes(wide, 100, 16, "q8_0") * 64 == kv_bytes(wide, 100, 16, "f16") * 34


def test_small_matrices_of_a_slot_start_on_cache_lines(plan: ModelPlan) -> None:
    layout = slot_layout(plan.expert_layers[0])
    assert (layout.gate, layout.up % 64, layout.down % 64, layout.size % 64) == (0, 0, 0, 0)
    assert layout.start(3) == 0


def test_a_size_is_the_whole_device(plan: ModelPlan) -> None:
    least = plan_memory(plan, "0%", 0, 16, "f16", MEMORY).least
    memory = plan_memory(plan, str(least + 10_000), 0, 16, "f16", MEMORY)
    assert memory.arena == 10_000
    assert memory.budget == least + 10_000
    assert plan_memory(plan, "64GiB", 0, 16, "f16", MEMORY).arena == memory.arena_full


def test_too_small_names_what_is_missing_and_the_least_that_works(plan: ModelPlan) -> None:
    least = plan_memory(plan, "0%", 0, 16, "f16", MEMORY).least
    with pytest.raises(BudgetError) as error:
        plan_memory(plan, "1KiB", 0, 16, "f16", MEMORY)
    assert error.value.least_bytes == least
    assert error.value.missing_bytes == least - 1024
    assert f"{least - 1024:,}" in str(error.value) and f"--budget {least}" in str(error.value)
    assert plan_memory(plan, str(error.value.least_bytes), 0, 16, "f16", MEMORY).arena == 0


def test_auto_takes_what_is_free_and_leaves_a_reserve(plan: ModelPlan) -> None:
    assert (
        plan_memory(plan, "auto", 0, 16, "f16", MEMORY).arena
        == plan_memory(plan, "100%", 0, 16, "f16", MEMORY).arena
    )
    tight = MemoryReading(total=1 << 34, available=(1 << 34) // 10 - 1)
    assert plan_memory(plan, "auto", 0, 16, "f16", tight).arena == 0


def test_an_automatic_reserve_is_less_where_the_choice_leaves_less(plan: ModelPlan) -> None:
    auto = plan_memory(plan, "auto", 0, 16, "f16", MEMORY)
    assert auto.left_free == (1 << 34) * 8 // 100
    small = MemoryReading(1 << 32, 1 << 31)
    assert plan_memory(plan, "auto", 0, 16, "f16", small).left_free == 2**30 * 4 // 5
    for spare, left in ((1 << 34, auto.left_free), (600 << 20, 300 << 20), (0, 256 << 20)):
        chosen = with_budget(auto, "100%", replace(MEMORY, available=auto.most + spare))
        assert chosen.left_free == left, spare
        assert chosen.arena == chosen.arena_full


@pytest.mark.parametrize("asked", [0, 123 << 20, 3 << 30])
def test_a_chosen_reserve_is_left_by_an_automatic_budget_and_a_quarter_more(
    plan: ModelPlan, asked: int
) -> None:
    wide = plan_memory(plan, "auto", 0, 16, "f16", MEMORY)
    tight = MemoryReading(1 << 34, wide.least + asked + asked // 4 + 5000)
    auto = plan_memory(plan, "auto", 0, 16, "f16", tight, reserve=str(asked))
    assert (auto.arena, auto.left_free) == (5000, asked)
    chosen = with_budget(auto, str(tight.available), tight)
    assert chosen.arena == min(5000 + asked * 5 // 4, chosen.arena_full)
    assert chosen.left_free == asked


def test_ram_caps_an_automatic_budget(plan: ModelPlan) -> None:
    free = plan_memory(plan, "auto", 0, 16, "f16", MEMORY)
    ram = free.least + 10_000
    capped = plan_memory(plan, "auto", 0, 16, "f16", MEMORY, ram=str(ram))
    assert capped.budget == ram
    assert with_budget(capped, str(ram - 7), MEMORY).budget == ram - 7
    assert plan_memory(plan, "auto", 0, 16, "f16", MEMORY, ram="16GiB").arena == free.arena
    assert plan_memory(plan, "64GiB", 0, 16, "f16", MEMORY, ram="16GiB").arena == free.arena


def test_ram_bounds_the_context(plan: ModelPlan) -> None:
    long = replace(plan, context=30_000)
    kv = kv_bytes(long, 30_000, 16, "f16")
    assert plan_memory(long, "auto", 0, 16, "f16", MEMORY).context == 30_000
    assert plan_memory(long, "auto", 0, 16, "f16", MEMORY, ram=str(8 * kv - 1)).context == 15_000


def test_budget_and_ram_that_contradict_each_other(plan: ModelPlan) -> None:
    free = plan_memory(plan, "auto", 0, 16, "f16", MEMORY)
    ram = free.least + 10_000
    for budget, size in (("100%", free.most), (str(ram + 300), ram + 300)):
        with pytest.raises(BudgetError, match="--ram") as error:
            plan_memory(plan, budget, 0, 16, "f16", MEMORY, ram=str(ram))
        assert error.value.missing_bytes == size - ram
        assert f"--budget {ram} or less" in str(error.value) and f"--ram {size}" in str(error.value)
        fits = plan_memory(plan, str(ram), 0, 16, "f16", MEMORY, ram=str(ram))
        assert fits.budget == ram


def test_ram_that_cannot_hold_the_model_itself(plan: ModelPlan) -> None:
    least = plan_memory(plan, "0%", 0, 16, "f16", MEMORY).least
    for budget in ("auto", "100%", "4GiB"):
        with pytest.raises(BudgetError, match="--ram") as error:
            plan_memory(plan, budget, 0, 16, "f16", MEMORY, ram=str(least - 77))
        assert error.value.missing_bytes == 77
        assert f"--ram {least}" in str(error.value)
    assert plan_memory(plan, "auto", 0, 16, "f16", MEMORY, ram=str(least)).arena == 0


@pytest.mark.parametrize("flag", ["ram", "reserve"])
def test_an_unreadable_size_is_named(plan: ModelPlan, flag: str) -> None:
    with pytest.raises(SettingError, match=f"--{flag} is 'much'"):
        plan_memory(plan, "auto", 0, 16, "f16", MEMORY, **{flag: "much"})


def test_more_than_the_machine_has_is_refused(plan: ModelPlan) -> None:
    full = plan_memory(plan, "100%", 0, 16, "f16", MEMORY)
    tight = MemoryReading(1 << 34, full.budget - 100)
    with pytest.raises(BudgetError, match="100 more than the") as error:
        plan_memory(plan, "100%", 0, 16, "f16", tight)
    assert error.value.missing_bytes == 100


def test_slots_cap_the_arena(plan: ModelPlan) -> None:
    slot = largest_slot(plan)
    few = plan_memory(plan, "100%", 0, 16, "f16", MEMORY, slots=3)
    assert few.arena == 3 * slot and few.arena_full > few.arena
    assert with_budget(few, "10%", MEMORY).arena == min(few.arena_full // 10, 3 * slot)
    assert with_budget(few, "100%", MEMORY).arena == 3 * slot
    many = plan_memory(plan, "100%", 0, 16, "f16", MEMORY, slots=1000)
    assert many.arena == many.arena_full


def test_a_refusal_names_the_nearest_context_that_fits(plan: ModelPlan) -> None:
    plan = replace(plan, context=4096)
    parts = plan_memory(plan, "0%", 4096, 16, "f16", MEMORY)
    with pytest.raises(BudgetError) as error:
        plan_memory(plan, str(parts.least - 1000), 4096, 16, "f16", MEMORY)
    assert "or --ctx 3840 or less" in str(error.value)  # 192 bytes a token
    assert plan_memory(plan, str(parts.least - 1000), 3840, 16, "f16", MEMORY).arena >= 0
    tight = MemoryReading(1 << 34, parts.least - 100_000)
    with pytest.raises(BudgetError) as error:
        plan_memory(plan, "0%", 4096, 16, "f16", tight)
    assert "Free 100,000 bytes" in str(error.value) and "--ctx 3328" in str(error.value)
    assert plan_memory(plan, "0%", 3328, 16, "f16", tight).budget <= tight.available


def test_a_window_takes_the_same_in_every_long_context(plan: ModelPlan) -> None:
    """One layer of three sees 70 positions; a position takes 64 bytes in a layer."""
    first, *others = plan.layers
    assert isinstance(first.mixer, AttentionSpec)
    first = replace(first, mixer=replace(first.mixer, window=70))
    plan = replace(plan, context=4096, layers=(first, *others))
    parts = plan_memory(plan, "0%", 4096, 16, "f16", MEMORY)
    ring, copy = 64 * 128, 64 * (128 + 64)  # for steps over 16 tokens; a window touches 3 chunks
    assert ring_bytes(plan, 4096, 16, "f16") == ring
    assert copy_bytes(plan, 4096, 16, "f16") == copy
    assert parts.fixed == ring + 2 * copy
    assert parts.kv == 2 * 64 * 4096 + parts.fixed
    whole = expected_peak(plan, parts, 4096, 16)
    assert whole - expected_peak(plan, parts, 1024, 16) == 2 * 64 * 3072
    with pytest.raises(BudgetError) as error:
        plan_memory(plan, str(parts.least - 100_000), 4096, 16, "f16", MEMORY)
    assert "or --ctx 3072 or less" in str(error.value)
    assert plan_memory(plan, str(parts.least - 100_000), 3072, 16, "f16", MEMORY).arena >= 0
    assert plan_memory(plan, "0%", 512, 16, "f16", MEMORY).fixed == 0


def test_spans_of_a_long_context_are_held_up_to_a_limit(plan: ModelPlan) -> None:
    """What attention leaves of a span: 16 + 16 floats for each of 2 heads, for at most 8 tokens."""
    rotations = sum(4 * x.dims for x in plan.ropes)

    def more(plan: ModelPlan, context: int, chunk: int) -> int:
        """Bytes beyond those of a context without a second span."""
        grown = scratch_bytes(plan, context, chunk) - scratch_bytes(plan, 512, chunk)
        return grown - (context - 512) * rotations

    assert more(plan, 513, 1) == 2 * (4 * 2 * 32) * 5 // 4
    assert more(plan, 5120, 8) == more(plan, 5120, 16) == 10 * 8 * (4 * 2 * 32) * 5 // 4
    assert more(plan, 1 << 24, 8) == (4 << 20) * 5 // 4
    wide = [
        replace(x, mixer=replace(x.mixer, heads=4096))
        for x in plan.layers
        if isinstance(x.mixer, AttentionSpec)
    ]
    assert more(replace(plan, layers=tuple(wide)), 1 << 24, 8) == 3 * 8 * (4 * 4096 * 32) * 5 // 4


@pytest.mark.parametrize("budget", ["0%", "40%", "100%"])
def test_the_peak_is_the_budget_when_all_of_it_was_used(plan: ModelPlan, budget: str) -> None:
    memory = plan_memory(plan, budget, 0, 16, "f16", MEMORY)
    most = expected_peak(plan, memory, memory.context, 16)
    assert memory.budget - 2 * HUGE_PAGE - memory.scratch < most < memory.budget
    assert expected_peak(plan, memory, memory.context // 2, 16) == most - memory.kv // 2
    assert expected_peak(plan, memory, memory.context, 4) < most


@pytest.mark.parametrize("bad", ["", "abc", "-5%", "101%", "x%", "5 XiB", "-1GiB", "nan", "1e99"])
def test_an_unreadable_budget_is_named(plan: ModelPlan, bad: str) -> None:
    with pytest.raises(SettingError, match="--budget"):
        plan_memory(plan, bad, 0, 16, "f16", MEMORY)
