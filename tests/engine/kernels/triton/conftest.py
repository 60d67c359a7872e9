"""Triton's kernels run here by its interpreter: numpy computes what a device would.

`tests/conftest.py` asks for the interpreter before anything imports Triton.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
from collections.abc import Callable, Iterator

import numpy as np
import pytest

# There are no packages of Triton for Windows.
collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_*.py"]


def patch_once() -> Callable[[Callable[..., object]], object]:
    """A way to put the interpreter's operations into `triton.language` that leaves them there.

    The interpreter does this anew for each call of each small function, at several milliseconds.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    patch = interpreter._patch_lang
    patched: set[frozenset[int]] = set()

    def patch_lang(function: Callable[..., object]) -> object:
        names = function.__globals__.values()
        here = frozenset(id(v) for v in names if inspect.ismodule(v) and v in (tl, tl.core))
        if here not in patched:
            patched.add(here)
            patch(function)
        return interpreter._LangPatchScope()  # nothing to put back

    return patch_lang


@pytest.fixture(autouse=True, scope="package")
def quick_interpreter() -> Iterator[None]:
    from triton.runtime import interpreter

    from engine.kernels.triton import launch

    builder = interpreter.interpreter_builder
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(interpreter, "_patch_lang", patch_once())
        # Results are compared bit for bit, so an overflow would show without the search for it.
        options = dataclasses.replace(builder.options, sanitize_overflow=False)
        patch.setattr(builder, "options", options)
        # Few programs of the tests' sizes: here a program costs much and a large tile as well.
        patch.setattr(launch, "ROWS", 8)
        patch.setattr(launch, "TILE", 8192)
        yield
