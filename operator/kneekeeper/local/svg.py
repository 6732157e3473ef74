"""A line chart as inline SVG: two axes from zero, five ticks each, dots at the measured points."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass

WIDTH, HEIGHT = 420, 260
_LEFT, _BOTTOM, _TOP, _RIGHT = 56, 44, 30, 16
_TICKS = 4
_NOTHING = 1e-9  # drawn on the axis


@dataclass(frozen=True)
class Curve:
    """Points (x, y), both at least 0."""

    title: str
    points: tuple[tuple[float, float], ...]


def line_chart(curve: Curve, x_label: str) -> str:
    """One `<svg>` element. The curve has at least one point."""
    points = sorted(curve.points)
    x_step, y_step = nice_step(max(x for x, _ in points)), nice_step(max(y for _, y in points))
    x_top, y_top = _TICKS * x_step, _TICKS * y_step

    def at(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (WIDTH - _LEFT - _RIGHT) * x / x_top
        return round(across, 1), round(HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * y / y_top, 1)

    parts = [f'<text x="{WIDTH / 2}" y="18" text-anchor="middle" font-weight="bold">{html.escape(curve.title)}</text>']
    for tick in range(_TICKS + 1):
        x, base = at(tick * x_step, 0)
        parts.append(f'<text x="{x}" y="{base + 16}" text-anchor="middle">{tick * x_step:g}</text>')
        left, y = at(0, tick * y_step)
        parts.append(f'<line x1="{left}" y1="{y}" x2="{WIDTH - _RIGHT}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{tick * y_step:g}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">{html.escape(x_label)}</text>')
    line = " ".join(f"{x},{y}" for x, y in (at(*point) for point in points))
    parts.append(f'<polyline points="{line}" fill="none" stroke="#0969da" stroke-width="2"/>')
    parts.extend(f'<circle cx="{x}" cy="{y}" r="3" fill="#0969da"/>' for x, y in (at(*point) for point in points))
    return f'<svg width="{WIDTH}" height="{HEIGHT}" font-size="12" role="img">{"".join(parts)}</svg>'


def nice_step(largest: float) -> float:
    """The least of 1, 2, 2.5, 5 times a power of ten of which `_TICKS` reach `largest`."""
    if largest < _NOTHING:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest / _TICKS))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10, 20) if _TICKS * power * factor >= largest * (1 - 1e-12))
