"""Whatever offset, length and address: the wanted bytes arrive and no others, in whole blocks."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.tiers.cover import Cover

BLOCK = 512  # of these tests; small, so that few bytes are many cases
DATA = np.random.default_rng(3).integers(0, 256, 40 * BLOCK, np.uint8).tobytes()
GUARD = 0xA5


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def read_blocks(buffers: list[memoryview], offset: int, most: int, block: int) -> int:
    """A device of whole blocks that gives at most `most` bytes at once."""
    assert offset % block == 0
    got = 0
    for buffer in buffers:
        assert len(buffer) % block == 0 and address(buffer) % block == 0
        part = DATA[offset + got : offset + got + min(len(buffer), most - got)]
        buffer[: len(part)] = part
        got += len(part)
        if len(part) < len(buffer):
            break
    return got


@given(
    offset=st.integers(0, 20 * BLOCK),
    nbytes=st.integers(1, 18 * BLOCK),
    skew=st.integers(0, BLOCK - 1),
    agrees=st.booleans(),
    most=st.integers(1, 20),
)
@example(offset=32, nbytes=BLOCK - 32, skew=0, agrees=True, most=20)  # within one block
@example(offset=BLOCK, nbytes=2 * BLOCK, skew=0, agrees=True, most=20)  # whole blocks
@example(offset=BLOCK - 1, nbytes=BLOCK + 2, skew=0, agrees=True, most=1)  # a byte on either side
def test_the_wanted_bytes_arrive_and_nothing_else_is_written(
    offset: int, nbytes: int, skew: int, agrees: bool, most: int
) -> None:
    with mmap.mmap(-1, 24 * BLOCK) as memory, mmap.mmap(-1, 24 * BLOCK) as bounce_memory:
        memory.write(bytes([GUARD]) * len(memory))
        at = BLOCK + (offset % BLOCK if agrees else skew)
        with (
            memoryview(memory) as whole,
            whole[at : at + nbytes] as into,
            memoryview(bounce_memory) as bounce,
            Cover(offset, into, bounce, BLOCK) as cover,
        ):
            done = 0
            while done < cover.needed:
                got = read_blocks(cover.rest(done), cover.start + done, most * BLOCK, BLOCK)
                assert got > 0
                done += got
            cover.finish()
        expected = bytearray([GUARD]) * len(memory)
        expected[at : at + nbytes] = DATA[offset : offset + nbytes]
        assert memory[:] == expected


def test_only_the_blocks_at_the_ends_take_the_long_way() -> None:
    whole = memoryview(mmap.mmap(-1, 10 * BLOCK))
    bounce = memoryview(mmap.mmap(-1, 2 * BLOCK))  # no room for more
    with Cover(5 * BLOCK + 32, whole[32 : 32 + 8 * BLOCK], bounce, BLOCK) as cover:
        assert [len(buffer) for buffer in cover.rest(0)] == [BLOCK, 7 * BLOCK, BLOCK]
        assert address(cover.rest(0)[1]) == address(whole) + BLOCK


def test_without_blocks_it_is_the_plain_read() -> None:
    into = memoryview(bytearray(100))
    with Cover(33, into, memoryview(b""), 1) as cover:
        assert (cover.start, cover.needed) == (33, 100)
        (buffer,) = cover.rest(40)
        assert len(buffer) == 60


def test_views_are_released_also_when_the_read_fails() -> None:
    memory = mmap.mmap(-1, 4 * BLOCK)
    bounce = memoryview(bytearray(4 * BLOCK))
    with (
        pytest.raises(OSError, match="gone") as kept,
        memoryview(memory) as into,
        Cover(7, into, bounce, BLOCK) as cover,
    ):
        cover.rest(BLOCK)
        raise OSError("gone")
    memory.close()  # BufferError while anybody looks at it
    assert kept
