"""Reads of real files, direct and not: the file's bytes or an error, the page cache left alone."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.errors import DiskReadError
from engine.tiers.direct_file import DirectFile, open_direct
from engine.tiers.disk import ModelFiles
from engine.tiers.raw_file import BLOCK, BufferedFile, RawFile
from tests.engine.tiers.disks import faulty, io_error

SIZE = 50 * BLOCK + 777  # the last block is no whole one
OFFSET, NBYTES = 5 * BLOCK + 32, 20 * BLOCK  # a read with a part of a block at either end


def drop_behind(path: str) -> RawFile:
    return BufferedFile(path, drop=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.bin"
    file.write_bytes(np.random.default_rng(5).integers(0, 256, SIZE, np.uint8).tobytes())
    return file


@pytest.fixture
def memory() -> Iterator[mmap.mmap]:
    with mmap.mmap(-1, 200 * BLOCK) as made:
        yield made


def read(files: ModelFiles, path: Path, offset: int, nbytes: int, memory: mmap.mmap) -> bytes:
    """A read to where the engine would have it; the bounce buffer lies behind."""
    at = offset % BLOCK
    with (
        memoryview(memory) as whole,
        whole[at : at + nbytes] as into,
        whole[100 * BLOCK :] as bounce,
    ):
        files.read_direct(str(path), offset, into, bounce)
        return bytes(into)


@pytest.mark.parametrize("opener", [open_direct, drop_behind])
@pytest.mark.parametrize(
    ("offset", "nbytes"),
    [(0, BLOCK), (0, SIZE), (OFFSET, NBYTES), (OFFSET, 7), (SIZE - 9, 9), (BLOCK - 1, 2)],
)
def test_direct_and_buffered_reads_give_the_files_bytes(
    path: Path, memory: mmap.mmap, opener: Callable[[str], RawFile], offset: int, nbytes: int
) -> None:
    files = ModelFiles(opener)
    expected = path.read_bytes()[offset : offset + nbytes]
    assert read(files, path, offset, nbytes, memory) == expected
    dense = bytearray(nbytes)
    files.read_into(str(path), offset, memoryview(dense))
    assert dense == expected
    files.close()


@pytest.mark.parametrize("most", [3 * BLOCK, 4 * BLOCK - 100])
def test_short_reads_are_continued_at_the_start_of_a_block(
    path: Path, memory: mmap.mmap, most: int
) -> None:
    asked: list[int] = []

    def fault(offset: int, nbytes: int) -> int:
        asked.append(offset)
        return most

    files = ModelFiles(faulty(fault))
    expected = path.read_bytes()[OFFSET : OFFSET + NBYTES]
    assert read(files, path, OFFSET, NBYTES, memory) == expected
    if files._file(str(path), True).block == BLOCK:  # direct reads are possible here
        assert asked == [(5 + 3 * i) * BLOCK for i in range(7)]  # 21 blocks
    files.close()


def test_a_bad_sector_is_an_error_that_names_file_and_offset(path: Path, memory: mmap.mmap) -> None:
    bad = OFFSET + 8 * BLOCK

    def fault(offset: int, nbytes: int) -> OSError | int | None:
        if offset <= bad < offset + 3 * BLOCK:
            return io_error()
        return 3 * BLOCK

    files = ModelFiles(faulty(fault))
    with pytest.raises(DiskReadError, match=f"offset {OFFSET:,} of .*Input/output") as error:
        read(files, path, OFFSET, NBYTES, memory)
    assert str(path) in str(error.value)
    assert read(files, path, 0, BLOCK, memory) == path.read_bytes()[:BLOCK]  # the rest is fine
    files.close()


def test_an_end_of_the_file_where_bytes_should_be_is_an_error(
    path: Path, memory: mmap.mmap
) -> None:
    files = ModelFiles()
    read(files, path, 0, BLOCK, memory)
    end = OFFSET + 10 * BLOCK + 100
    os.truncate(path, end)
    with pytest.raises(
        DiskReadError, match=f"ends before offset {end:,}, where {10 * BLOCK - 100:,}"
    ):
        read(files, path, OFFSET, NBYTES, memory)
    files.close()


@pytest.mark.parametrize("opener", [open_direct, drop_behind])
def test_a_file_that_is_written_to_is_an_error(
    path: Path, memory: mmap.mmap, opener: Callable[[str], RawFile]
) -> None:
    files = ModelFiles(opener)
    read(files, path, OFFSET, NBYTES, memory)
    with path.open("r+b") as file:
        file.seek(OFFSET + 5)
        file.write(b"other bytes")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10_000_000))  # clocks of files tick slowly
    with pytest.raises(DiskReadError, match="was written to while it was in use"):
        read(files, path, OFFSET, NBYTES, memory)
    with pytest.raises(DiskReadError, match="written to while it was in use"):
        files.read_into(str(path), 0, memoryview(bytearray(10)))
    files.close()


def test_a_file_that_is_replaced_is_read_on_or_refused_never_mixed(
    path: Path, memory: mmap.mmap
) -> None:
    files = ModelFiles()
    before = path.read_bytes()
    files.read_into(str(path), 0, memoryview(bytearray(10)))  # the dense part, of the old file
    other = path.with_suffix(".new")
    other.write_bytes(bytes(SIZE))
    other.replace(path)
    with pytest.raises(DiskReadError, match="was replaced or"):
        read(files, path, OFFSET, NBYTES, memory)
    late = bytearray(10)
    files.read_into(str(path), 20, memoryview(late))  # open already: still the old one
    assert late == before[20:30]
    files.close()


def test_a_file_that_is_gone_is_an_error(tmp_path: Path, memory: mmap.mmap) -> None:
    files = ModelFiles()
    with pytest.raises(DiskReadError, match=r"gone\.bin failed: No such file"):
        read(files, tmp_path / "gone.bin", 0, BLOCK, memory)


def test_a_failed_read_lets_go_of_the_memory(path: Path) -> None:
    files, memory = (
        ModelFiles(faulty(lambda offset, nbytes: io_error())),
        mmap.mmap(-1, 200 * BLOCK),
    )
    with pytest.raises(DiskReadError) as kept:
        read(files, path, OFFSET, NBYTES, memory)
    memory.close()  # BufferError if the kept traceback held a view
    assert kept
    files.close()


@pytest.mark.skipif(sys.platform != "linux", reason="O_DIRECT is Linux's")
@pytest.mark.parametrize("refusal", ["open", "read"])
def test_where_direct_reads_are_refused_they_are_ordinary(
    path: Path, memory: mmap.mmap, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, reads = os.open, os.preadv

    def refuse_open(name: str, flags: int) -> int:
        if flags & os.O_DIRECT and refusal == "open":
            raise OSError(errno.EINVAL, "Invalid argument")
        return opens(name, flags)

    def refuse_read(fd: int, buffers: list[memoryview], offset: int) -> int:
        import fcntl

        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return reads(fd, buffers, offset)

    monkeypatch.setattr(os, "open", refuse_open)
    monkeypatch.setattr(os, "preadv", refuse_read)
    files = ModelFiles()
    expected = path.read_bytes()[OFFSET : OFFSET + NBYTES]
    assert read(files, path, OFFSET, NBYTES, memory) == expected
    files.close()


def cached_pages(path: Path) -> int:
    """Pages of the file in the page cache, by `mincore`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        seen = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        start = np.frombuffer(mapped, np.uint8)
        ask = ctypes.CDLL(None, use_errno=True).mincore
        ask.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        assert ask(start.ctypes.data, len(mapped), seen.ctypes.data) == 0
        del start
    return int((seen & 1).sum())


@pytest.mark.skipif(sys.platform != "linux", reason="mincore is asked")
@pytest.mark.parametrize("opener", [DirectFile, drop_behind])
def test_the_page_cache_does_not_grow_by_what_is_read(
    tmp_path: Path, opener: Callable[[str], RawFile]
) -> None:
    path, expert, count = tmp_path / "model.bin", 860_192, 40
    path.write_bytes(os.urandom(expert * count))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    if cached_pages(path) > 0:
        pytest.skip("this file system lives in the page cache")
    files = ModelFiles(opener)
    with mmap.mmap(-1, 2 << 20) as memory, memoryview(memory) as whole:
        try:
            for i in np.random.default_rng(1).permutation(count).tolist():
                at = i * expert % BLOCK
                with whole[at : at + expert] as into, whole[1 << 20 :] as bounce:
                    files.read_direct(str(path), i * expert, into, bounce)
        except DiskReadError as error:
            assert opener is DirectFile and "Invalid argument" in str(error)
            pytest.skip("this file system refuses direct reads")
    assert cached_pages(path) <= count // 10  # of 8400
    files.close()
