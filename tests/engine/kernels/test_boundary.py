"""What the kernels refuse, in words; and the thread pool when nothing or too much is going on."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import KernelError
from engine.gguf.formats import F32, Q4_K, Q8_0
from engine.kernels.table import ExpertMatrix, Kernels, Matrix, available_isas, physical_cores
from tests.engine.kernels.blocks import as_matrix, random_rows
from tests.engine.kernels.conftest import kernels


def zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


@pytest.fixture
def k() -> Kernels:
    return kernels("auto", 2)


def matrix() -> Matrix:
    return as_matrix(Q8_0, random_rows(Q8_0, 4, 64, "sane", np.random.default_rng(0)), 64)


def test_unknown_instruction_set() -> None:
    with pytest.raises(KernelError, match=r"'neon'.*not on this processor"):
        Kernels(1, "neon")


@pytest.mark.parametrize("threads", [-1, 5000])
def test_impossible_thread_count(threads: int) -> None:
    with pytest.raises(KernelError, match="threads must be"):
        Kernels(threads)


def test_default_is_one_thread_per_core() -> None:
    made = Kernels()
    assert made.threads == physical_cores() >= 1
    assert made.isa == available_isas()[0]
    assert available_isas()[-1] == "scalar"


def test_wrong_shape(k: Kernels) -> None:
    with pytest.raises(KernelError, match="matmul: x has 32 columns, the matrix has 64"):
        k.matmul(matrix(), zeros(2, 32), zeros(2, 4))
    with pytest.raises(KernelError, match=r"matmul: out must have shape \(2, 4\), has \(3, 4\)"):
        k.matmul(matrix(), zeros(2, 64), zeros(3, 4))


def test_wrong_type_and_layout(k: Kernels) -> None:
    with pytest.raises(KernelError, match="x must be float32, is buffer type 'd'"):
        k.matmul(matrix(), np.zeros((2, 64)), zeros(2, 4))  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="x must be a C-contiguous numpy array"):
        k.matmul(matrix(), zeros(64, 2).T, zeros(2, 4))
    with pytest.raises(KernelError, match="x must be a C-contiguous numpy array"):
        k.matmul(matrix(), [1.0], zeros(2, 4))  # type: ignore[arg-type]
    readonly = zeros(2, 4)
    readonly.flags.writeable = False
    with pytest.raises(KernelError, match="out must be a writable"):
        k.matmul(matrix(), zeros(2, 64), readonly)


def test_impossible_matrix(k: Kernels) -> None:
    keep = matrix()
    for bad in (
        Matrix(keep.address, 99, 4, 64),
        Matrix(keep.address, Q4_K.id, 4, 64),
        Matrix(keep.address, Q8_0.id, 0, 64),
        Matrix(0, Q8_0.id, 4, 64),
        Matrix(keep.address, F32.id, 4, 2**30),
    ):
        with pytest.raises(KernelError, match="matmul"):
            k.matmul(bad, zeros(1, bad.cols if bad.cols < 2**20 else 1), zeros(1, 4))


def test_ids_out_of_range(k: Kernels) -> None:
    for bad in (-1, 4):
        with pytest.raises(KernelError, match=rf"embed: id {bad} is not in 0\.\.3"):
            k.embed(matrix(), np.array([0, bad], np.int32), zeros(2, 64))
    m = ExpertMatrix(0, Q8_0.id, 64, 64)
    with pytest.raises(KernelError, match=r"experts: id 7 is not in 0\.\.1"):
        k.experts(
            zeros(1, 64),
            np.array([[7]], np.int32),
            np.zeros(2, np.uint64),
            m,
            m,
            m,
            zeros(1, 1, 64),
        )


def test_experts_that_do_not_fit_together(k: Kernels) -> None:
    m, narrow = ExpertMatrix(0, Q8_0.id, 64, 64), ExpertMatrix(0, Q8_0.id, 32, 64)
    with pytest.raises(KernelError, match="do not fit together"):
        k.experts(
            zeros(1, 64), np.zeros((1, 1), np.int32), np.zeros(1, np.uint64), m, narrow, m,
            zeros(1, 1, 64),
        )  # fmt: skip


def test_biases_and_activations_that_do_not_exist(k: Kernels) -> None:
    m, ids, base = (
        ExpertMatrix(0, Q8_0.id, 64, 64),
        np.zeros((1, 1), np.int32),
        np.zeros(3, np.uint64),
    )
    call = (zeros(1, 64), ids, base, m, m, m, zeros(1, 1, 64))
    with pytest.raises(KernelError, match=r"up_bias must have shape \(3, 64\), has \(3, 32\)"):
        k.experts(*call, biases=(None, zeros(3, 32), None))
    with pytest.raises(KernelError, match="'relu' is unknown"):
        k.experts(*call, activation="relu")


def test_experts_that_are_all_absent(k: Kernels) -> None:
    m, y = ExpertMatrix(0, Q8_0.id, 64, 64), zeros(1, 1, 64) + 5
    k.experts(zeros(1, 64), np.zeros((1, 1), np.int32), np.zeros(1, np.uint64), m, m, m, y)
    assert (y == 5).all()


def test_positions_out_of_range(k: Kernels) -> None:
    cache = np.zeros((64, 32), np.float16)
    with pytest.raises(KernelError, match=r"store_kv: 65 positions do not fit 64"):
        k.store_kv(zeros(65, 32), zeros(65, 32), cache, cache.copy(), 0, 16)
    for window in (0, 64):
        with pytest.raises(KernelError, match=r"positions 63\.\.64 are not in a context of 64"):
            k.attention(zeros(2, 32), cache, cache, 63, 2, 16, 1.0, zeros(2, 32), window)
    k.attention(zeros(2, 32), cache, cache, 63, 2, 16, 1.0, zeros(2, 32), 63)
    with pytest.raises(KernelError, match=r"positions -1"):
        k.attention(zeros(1, 32), cache, cache, -1, 2, 16, 1.0, zeros(1, 32))
    with pytest.raises(KernelError, match="multiple of 64"):
        k.attention(zeros(1, 32), cache[:60], cache[:60], 0, 2, 16, 1.0, zeros(1, 32))
    with pytest.raises(KernelError, match="head_dim is 24"):
        k.attention(zeros(1, 48), cache, cache, 0, 2, 24, 1.0, zeros(1, 48))
    with pytest.raises(KernelError, match="positions"):
        k.head_norm_rope(zeros(2, 32), 2, 16, zeros(16), 1e-6, zeros(4, 8), zeros(4, 8), 3)
    with pytest.raises(KernelError, match="positions"):
        k.rope(zeros(2, 32), 2, 16, zeros(4, 8), zeros(4, 8), 3)


def test_a_rotation_beyond_the_head(k: Kernels) -> None:
    with pytest.raises(KernelError, match="rope: cos and sin rotate more than a head has"):
        k.rope(zeros(2, 32), 2, 16, zeros(4, 8), zeros(4, 8), 0, first=1)


def test_windows_and_sinks_that_do_not_fit(k: Kernels) -> None:
    cache, q = np.zeros((64, 32), np.float16), zeros(1, 64)
    with pytest.raises(KernelError, match="attention: the window is negative"):
        k.attention(q, cache, cache, 0, 2, 16, 1.0, q, -1)
    with pytest.raises(KernelError, match=r"attention: sinks must have shape \(4\), has \(2\)"):
        k.attention(q, cache, cache, 0, 2, 16, 1.0, q, 0, zeros(2))


def test_gates_that_do_not_divide(k: Kernels) -> None:
    with pytest.raises(KernelError, match="softplus_gate: gate has 3 columns, must divide the 8"):
        k.softplus_gate(zeros(1, 8), zeros(1, 3))


def test_caches_of_the_wrong_kind(k: Kernels) -> None:
    half, bytes_ = np.zeros((64, 32), np.float16), np.zeros((64, 34), np.uint8)
    with pytest.raises(KernelError, match=r"v_cache must be uint8"):
        k.store_kv(zeros(1, 32), zeros(1, 32), bytes_, half, 0, 32)
    with pytest.raises(KernelError, match=r"k_cache must have shape \(any, 34\), has \(64, 32\)"):
        k.attention(zeros(1, 32), bytes_[:, :32].copy(), bytes_, 0, 1, 32, 1.0, zeros(1, 32))
    with pytest.raises(KernelError, match="head_dim must be a multiple of 32 for Q8_0"):
        k.store_kv(zeros(1, 32), zeros(1, 32), bytes_, bytes_.copy(), 0, 16)
    with pytest.raises(KernelError, match="the columns of k must be a multiple of head_dim"):
        k.store_kv(zeros(1, 32), zeros(1, 32), half, half.copy(), 0, 48)


def test_recurrent_shapes_that_do_not_fit(k: Kernels) -> None:
    with pytest.raises(KernelError, match="state must have 3 rows, or 9"):
        k.conv_step(zeros(2, 8), zeros(4, 8), zeros(4, 8), zeros(2, 8))
    state, gates = zeros(4, 16, 16), zeros(1, 4)
    with pytest.raises(KernelError, match="4 value heads do not share 3 key heads"):
        k.delta_net(zeros(1, 160), gates, gates, state, 3, True, 1e-6, 0.25, zeros(1, 64))
    with pytest.raises(KernelError, match=r"qkv must have shape \(any, 128\), has \(1, 160\)"):
        k.delta_net(zeros(1, 160), gates, gates, state, 2, True, 1e-6, 0.25, zeros(1, 64))
    with pytest.raises(KernelError, match="head_dim is 24"):
        k.delta_net(
            zeros(1, 160), gates, gates, zeros(4, 16, 24), 2, True, 1e-6, 0.25, zeros(1, 96)
        )


def test_too_many_experts_used(k: Kernels) -> None:
    with pytest.raises(KernelError, match="9 of 8 experts"):
        k.route(zeros(1, 8), 9, np.zeros((1, 9), np.int32), zeros(1, 9))


def test_empty_batch(k: Kernels) -> None:
    k.matmul(matrix(), zeros(0, 64), zeros(0, 4))
    k.route(zeros(0, 8), 2, np.zeros((0, 2), np.int32), zeros(0, 2))


def test_idle_threads_sleep() -> None:
    made = Kernels(8)
    made.add(zeros(64, 4096), zeros(64, 4096))
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(1.0)
    assert time.process_time() - before < 0.01


def test_more_threads_than_cores_and_calls_from_several_python_threads() -> None:
    made = Kernels(16)
    m = matrix()
    x = np.ones((3, 64), np.float32)
    want = zeros(3, 4)
    made.matmul(m, x, want)
    wrong: list[int] = []

    def work() -> None:
        out = zeros(3, 4)
        for i in range(300):
            made.matmul(m, x, out)
            if (out != want).any():
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def in_a_child(code: str) -> str:
    """What the program `code` prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stderr == b""
    return done.stdout.decode()


def test_interpreter_ends_quietly_with_live_kernels() -> None:
    code = (
        "import numpy as np; from engine.kernels.table import Kernels; k = Kernels(4); "
        "a = np.zeros((64, 4096), np.float32); k.add(a, a); k.itself = k"
    )
    assert in_a_child(code) == ""


LIMIT_OF_MEMORY = """
import resource
import numpy as np
from engine.errors import KernelError
from engine.gguf.formats import Q8_0
from engine.kernels.table import Kernels
from tests.engine.kernels.blocks import as_matrix, random_rows

def allow(more):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
"""
limits = pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")


@limits
def test_a_call_that_lacks_memory_leaves_the_kernels_as_they_were() -> None:
    """Its buffers want 60 MB; it may be tried again, and works once there is room."""
    code = """
k, w = Kernels(1), as_matrix(Q8_0, random_rows(Q8_0, 4, 64, "sane", np.random.default_rng(0)), 64)
x, out = np.ones((100_000, 64), np.float32), np.zeros((100_000, 4), np.float32)
k.matmul(w, x[:1], out[:1])
allow(20 << 20)
for _ in range(2):
    try:
        k.matmul(w, x, out)
    except MemoryError:
        print("no memory")
allow(1 << 30)
k.matmul(w, x, out)
print((out == out[0]).all())
"""
    assert in_a_child(LIMIT_OF_MEMORY + code) == "no memory\nno memory\nTrue\n"


@limits
def test_threads_that_the_system_does_not_start() -> None:
    """There is no room for a thousand stacks; those that were made are gone, others can be."""
    code = """
Kernels(1)
allow(128 << 20)
try:
    Kernels(1000)
except KernelError as error:
    print(error)
print(Kernels(3).threads)
"""
    first, second = in_a_child(LIMIT_OF_MEMORY + code).splitlines()
    assert first.startswith("Kernels: the system does not start 1000 threads (")
    assert first.endswith("). Use fewer, with --threads.")
    assert second == "3"


def test_a_flushing_caller_changes_nothing(isa: str) -> None:
    """Other libraries may switch a thread, and the threads it makes, to flushing subnormals."""
    import torch

    a = np.full((64, 4096), 2.0**-140, np.float32)
    w = np.full((64, 4096), 2.0**-70, np.float32)
    x = np.full((1, 4096), 2.0**-75, np.float32)
    sums, product = a.copy(), zeros(1, 64)
    assert torch.set_flush_denormal(True)
    try:
        made = Kernels(2, isa)
        made.add(sums, a)
        made.matmul(Matrix(w.ctypes.data, F32.id, 64, 4096), x, product)
    finally:
        torch.set_flush_denormal(False)
    assert (sums == 2.0**-139).all()
    assert (product == 2.0 ** (12 - 145)).all()
