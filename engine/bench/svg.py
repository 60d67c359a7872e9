"""The frame that all drawings share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.errors import TraceError


def write_svg(path: str, width: float, height: float, parts: Sequence[str]) -> None:
    """Write elements as a drawing of `width` x `height` pixels on white. Raises TraceError when the
    file cannot be written."""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
    try:
        Path(path).write_text(svg, encoding="utf-8")
    except OSError as error:
        raise TraceError(
            f"The drawing {path} cannot be written: {error.strerror or error}"
        ) from error
