"""What every operation demands of its tensors; what does not fit raises `KernelError`."""

from __future__ import annotations

import torch

from engine.errors import KernelError
from engine.gguf.formats import Format

Tensor = torch.Tensor


def require(
    name: str,
    x: Tensor,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    device: torch.device | None = None,
) -> None:
    if x.dtype != dtype or tuple(x.shape) != shape:
        raise KernelError(
            f"{name} is {x.dtype} {tuple(x.shape)} instead of {dtype} {shape}".replace("torch.", "")
        )
    if not x.is_contiguous():
        raise KernelError(f"{name} is not contiguous")
    if device is not None:
        require_on(name, x, device)


def require_if_any(
    name: str, x: Tensor | None, shape: tuple[int, ...], device: torch.device
) -> None:
    """Of float32 values that need not be there."""
    if x is not None:
        require(name, x, torch.float32, shape, device)


def require_on(name: str, x: Tensor, device: torch.device) -> None:
    if x.device != device:
        raise KernelError(f"{name} is on {x.device}, not on {device}")


def require_same(what: str, a: object, other: str, b: object) -> None:
    if a != b:
        raise KernelError(f"The sizes do not fit: {what} {a}, {other} {b}")


def require_blocks(format: Format, cols: int) -> None:
    if cols % format.block:
        raise KernelError(f"{cols} columns are no whole number of {format.name} blocks")


def rows_and_columns(name: str, x: Tensor) -> tuple[int, int]:
    """Of float32 `[rows, columns]`."""
    if x.dim() != 2:
        raise KernelError(f"{name} has the shape {tuple(x.shape)}, not two dimensions")
    require(name, x, torch.float32, tuple(x.shape))
    return x.shape[0], x.shape[1]


def columns_of(name: str, x: Tensor, dtype: torch.dtype, n: int, device: torch.device) -> int:
    """Of `[n, columns]`."""
    columns = x.shape[-1] if x.dim() else 0
    require(name, x, dtype, (n, columns), device)
    return columns
