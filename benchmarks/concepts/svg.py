"""Panels of curves and heat maps as SVG files that stand alone: no scripts, no fonts, readable on any background."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

COLOURS = ("#0072b2", "#d55e00", "#009e73")
"""Told apart by colour-blind people too (Okabe and Ito, Color Universal Design, 2008); dashes tell them once more."""
_DASHES = ("", "7 3", "2 3")
_INK, _GRID = "#333", "#ddd"

PANEL_WIDTH, PANEL_HEIGHT = 380, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 34, 46
_LEGEND_LINE = 17


class Scale(Enum):
    """How an axis is divided."""

    LINEAR = "linear"
    LOG = "log"


@dataclass(frozen=True)
class Axis:
    """From the first to the last tick; of a log axis all are above 0."""

    label: str
    ticks: Sequence[float]
    scale: Scale = Scale.LINEAR

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the first tick, 1 at the last; values beyond are put at the end."""
        low, high = self.ticks[0], self.ticks[-1]
        value = min(max(value, low), high)
        if self.scale is Scale.LOG:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


@dataclass(frozen=True)
class Curve:
    """Points (x, y) joined by a line."""

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Mark:
    """A vertical line at `x`."""

    x: float
    label: str


@dataclass(frozen=True)
class Panel:
    """At most three curves on two axes."""

    title: str
    x: Axis
    y: Axis
    curves: Sequence[Curve]
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class HeatMap:
    """`values[row][column]` from 0 to 1; row 0 is drawn lowest. The cell `framed`, row and column, has a frame."""

    title: str
    columns: Sequence[int]
    rows: Sequence[int]
    values: Sequence[Sequence[float]]
    framed: tuple[int, int]


def panels(drawn: Sequence[Panel], description: str) -> str:
    """One SVG with the panels side by side. `description` is read to those who do not see it."""
    return _document([_panel(panel) for panel in drawn], description)


def heat_maps(drawn: Sequence[HeatMap], column_label: str, row_label: str, description: str) -> str:
    """The same of heat maps."""
    return _document([_heat_map(heat_map, column_label, row_label) for heat_map in drawn], description)


def _document(groups: Sequence[str], description: str) -> str:
    width = PANEL_WIDTH * len(groups)
    placed = (f'<g transform="translate({PANEL_WIDTH * index} 0)">{group}</g>' for index, group in enumerate(groups))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {PANEL_HEIGHT}" width="{width}" '
        f'height="{PANEL_HEIGHT}" font-family="system-ui, sans-serif" font-size="12" fill="{_INK}" role="img">\n'
        f"<desc>{html.escape(description)}</desc>\n"
        f'<rect width="{width}" height="{PANEL_HEIGHT}" rx="6" fill="#fff"/>\n' + "\n".join(placed) + "\n</svg>\n"
    )


def _at(panel: Panel, x: float, y: float) -> tuple[float, float]:
    across = _LEFT + (PANEL_WIDTH - _LEFT - _RIGHT) * panel.x.share(x)
    return round(across, 1), round(PANEL_HEIGHT - _BOTTOM - (PANEL_HEIGHT - _BOTTOM - _TOP) * panel.y.share(y), 1)


def _panel(panel: Panel) -> str:
    parts = [_title(panel.title)]
    left, bottom = _at(panel, panel.x.ticks[0], panel.y.ticks[0])
    right, top = _at(panel, panel.x.ticks[-1], panel.y.ticks[-1])
    for tick in panel.y.ticks:
        _, y = _at(panel, panel.x.ticks[0], tick)
        parts.append(f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="{_GRID}"/>')
        parts.append(_text(left - 6, y + 4, f"{tick:g}", "end"))
    parts += [_text(_at(panel, tick, panel.y.ticks[0])[0], bottom + 16, f"{tick:g}") for tick in panel.x.ticks]
    parts.append(_text((left + right) / 2, PANEL_HEIGHT - 10, panel.x.label))
    parts.append(_sideways(panel.y.label, (top + bottom) / 2))
    for mark in panel.marks:
        x, _ = _at(panel, mark.x, panel.y.ticks[0])
        parts.append(f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="{_INK}" stroke-dasharray="4 3"/>')
        parts.append(_text(x - 5, bottom - 8, mark.label, "end"))
    for index, curve in enumerate(panel.curves):
        line = " ".join(f"{x},{y}" for x, y in (_at(panel, *point) for point in curve.points))
        style = f'stroke="{COLOURS[index]}" stroke-width="2" stroke-dasharray="{_DASHES[index]}"'
        parts.append(f'<polyline points="{line}" fill="none" stroke-linejoin="round" {style}/>')
        if len(panel.curves) > 1:
            y = top + 12 + _LEGEND_LINE * index
            parts.append(f'<line x1="{left + 8}" y1="{y - 4}" x2="{left + 34}" y2="{y - 4}" {style}/>')
            parts.append(_text(left + 40, y, curve.label, "start"))
    return "".join(parts)


def _heat_map(heat_map: HeatMap, column_label: str, row_label: str) -> str:
    parts = [_title(heat_map.title)]
    width = (PANEL_WIDTH - _LEFT - _RIGHT) / len(heat_map.columns)
    height = (PANEL_HEIGHT - _TOP - _BOTTOM) / len(heat_map.rows)
    framed = ""
    for row, values in enumerate(heat_map.values):
        y = round(PANEL_HEIGHT - _BOTTOM - height * (row + 1), 1)
        parts.append(_text(_LEFT - 6, y + height / 2 + 4, f"{heat_map.rows[row]}", "end"))
        for column, value in enumerate(values):
            x = round(_LEFT + width * column, 1)
            cell = f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{height:.1f}" fill="{_shade(value)}"'
            parts.append(f'{cell} stroke="#fff"/>')
            ink = "#fff" if value > 0.5 else _INK
            label = _text(x + width / 2, y + height / 2 + 4, f"{100 * value:.0f}", ink=ink)
            parts.append(label)
            if (row, column) == heat_map.framed:
                framed = f'{cell.partition(" fill=")[0]} fill="none" stroke="{COLOURS[1]}" stroke-width="3"/>'
    for column, name in enumerate(heat_map.columns):
        parts.append(_text(_LEFT + width * (column + 0.5), PANEL_HEIGHT - _BOTTOM + 16, f"{name}"))
    parts.append(_text((_LEFT + PANEL_WIDTH - _RIGHT) / 2, PANEL_HEIGHT - 10, column_label))
    parts.append(_sideways(row_label, (_TOP + PANEL_HEIGHT - _BOTTOM) / 2))
    return "".join([*parts, framed])


def _shade(value: float) -> str:
    """From white to the first colour."""
    full = [int(COLOURS[0][at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(255 + (part - 255) * value):02x}" for part in full)


def _title(text: str) -> str:
    return f'<text x="{PANEL_WIDTH / 2}" y="20" text-anchor="middle" font-weight="bold">{html.escape(text)}</text>'


def _sideways(text: str, y: float) -> str:
    place = f'x="14" y="{y:g}" transform="rotate(-90 14 {y:g})" text-anchor="middle"'
    return f"<text {place}>{html.escape(text)}</text>"


def _text(x: float, y: float, text: str, anchor: str = "middle", ink: str = _INK) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{ink}">{html.escape(text)}</text>'
