"""Numbers as people read them."""

from __future__ import annotations

_STEPS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size(count: int) -> str:
    """Bytes with three significant digits: `1.42 GiB`, `38.0 MiB`, `512 B`."""
    for step, unit in _STEPS:
        # 1023.6 MiB would print as "1024 MiB": the next unit begins a little early.
        if abs(count) >= step * 0.9995:
            value = count / step
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{count} B"


def share(part: float, whole: float) -> str:
    """`42 %`; one digit more below ten percent; a dash when there is nothing to divide."""
    if whole <= 0:
        return "–"
    percent = 100.0 * part / whole
    if percent in (0.0, 100.0):
        return f"{percent:.0f} %"
    # "100 %" and "0 %" are kept for exactly all and exactly none.
    percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.1f} %" if percent < 10 or percent > 99 else f"{percent:.0f} %"


def rate(tokens_per_s: float) -> str:
    """Tokens per second with about three significant digits, without the unit."""
    if tokens_per_s >= 99.95:
        return f"{tokens_per_s:.0f}"
    return f"{tokens_per_s:.1f}" if tokens_per_s >= 0.95 else f"{tokens_per_s:.2f}"


def about(tokens_per_s: float) -> str:
    """A predicted rate, with no more digits than a prediction is good for: `14`, `2.3`, `830`."""
    return f"{float(f'{tokens_per_s:.2g}'):g}"


def count(number: int) -> str:
    """`24 576`, grouped by thin spaces."""
    return f"{number:,}".replace(",", "\u202f")
