"""A small line chart as SVG: misses and copies over residency, one line per policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from engine.bench.svg import write_svg

# Distinct for most kinds of colour vision (Okabe and Ito, 2008), and a dash pattern besides.
_LINES = (
    ("#0072b2", ""),
    ("#d55e00", "6 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "8 3 2 3"),
    ("#555555", "4 2"),
    ("#e69f00", "1 2"),
)
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 330, 240, 62, 56, 84  # of a panel, and around it


def write_plot(path: str, title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Write `rows` of the simulator (policy, residency, miss_rate, promotions_per_token). Raises
    TraceError when the file cannot be written."""
    names = list(dict.fromkeys(str(row["policy"]) for row in rows))
    parts = [f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}</text>']
    for at, (key, label, unit) in enumerate(
        (
            ("miss_rate", "misses, % of routes", 100),
            ("promotions_per_token", "experts copied per token", 1),
        )
    ):
        lines = {
            name: [
                (_number(row["residency"]) * 100, _number(row[key]) * unit)
                for row in rows
                if row["policy"] == name
            ]
            for name in names
        }
        parts += _panel(_LEFT + at * (_WIDTH + _GAP), label, lines)
    legend = _LEFT + 2 * _WIDTH + _GAP + 24
    for at, name in enumerate(names):
        y = _TOP + 14 + 22 * at
        parts.append(_stroke(f"M{legend} {y}h28", at))
        parts.append(f'<text x="{legend + 36}" y="{y + 4}">{escape(name)}</text>')
    write_svg(path, legend + 150, _TOP + _HEIGHT + 52, parts)


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def _panel(left: int, label: str, lines: Mapping[str, list[tuple[float, float]]]) -> list[str]:
    points = [point for line in lines.values() for point in line]
    top, step = _scale(max(y for _, y in points))
    bottom = _TOP + _HEIGHT

    def x(value: float) -> float:
        return round(left + value / 100 * _WIDTH, 1)

    def y(value: float) -> float:
        return round(bottom - value / top * _HEIGHT, 1)

    parts = [f'<text x="{left}" y="{_TOP - 12}">{escape(label)}</text>']
    for tick in range(round(top / step) + 1):
        at = y(tick * step)
        parts.append(f'<path d="M{left} {at}h{_WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4}" text-anchor="end">{tick * step:g}</text>')
    for percent in range(0, 101, 20):
        parts.append(f'<path d="M{x(percent)} {bottom}v5" stroke="black"/>')
        parts.append(
            f'<text x="{x(percent)}" y="{bottom + 19}" text-anchor="middle">{percent}</text>'
        )
    parts.append(f'<path d="M{left} {_TOP}v{_HEIGHT}h{_WIDTH}" fill="none" stroke="black"/>')
    parts.append(
        f'<text x="{left + _WIDTH / 2}" y="{bottom + 40}" text-anchor="middle">'
        "experts resident, %</text>"
    )
    for at, line in enumerate(lines.values()):
        path = "L".join(f"{x(px)} {y(py)}" for px, py in sorted(line))
        parts.append(_stroke(f"M{path}", at))
        colour = _LINES[at % len(_LINES)][0]
        parts += [f'<circle cx="{x(a)}" cy="{y(b)}" r="3" fill="{colour}"/>' for a, b in line]
    return parts


def _stroke(path: str, at: int) -> str:
    colour, dashes = _LINES[at % len(_LINES)]
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dashes or "none"}"/>'
    )


def _scale(largest: float) -> tuple[float, float]:
    """A round end of the axis at or above `largest`, and the distance of its ticks."""
    step = 1e-3
    while True:
        for factor in (1, 2, 5):
            if step * factor * 6 >= largest:
                ticks = max(1, -(-largest // (step * factor)))
                return ticks * step * factor, step * factor
        step *= 10
