"""Pictures in the terminal: throughput and P99 latencies against the number of requests in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import plotext

_WIDTH, _HEIGHT = 92, 14

_Pairs = Sequence[tuple[float, float]]


class Ink(Enum):
    """What the place where a picture is printed can show."""

    PLAIN = auto()
    COLOUR = auto()


@dataclass(frozen=True)
class Series:
    """Points, drawn with one character each; braille dots for lines."""

    points: _Pairs
    marker: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `lines` are drawn from point to point, below the `dots`; the y axis begins at 0 and ends at
    `top`, where values are cut off, or somewhat above the highest."""

    title: str
    lines: tuple[Series, ...] = ()
    dots: tuple[Series, ...] = ()
    top: float | None = None
    right: float | None = None
    """Where the x axis ends, which then begins at 0; left out, both follow from the points."""


@dataclass(frozen=True)
class Point:
    """One load level. `p99_ms` is None where nothing was answered."""

    concurrency: float
    requests_per_second: float
    p99_ttft_ms: float | None
    p99_tpot_ms: float | None


def chart(points: Sequence[Point]) -> str:
    """Three panels, one below the other, without colours; empty where fewer than two points can be shown."""
    ordered = sorted(points, key=lambda point: point.concurrency)
    if len(ordered) < 2:
        return ""
    panels = (
        ("requests/s", [(p.concurrency, p.requests_per_second) for p in ordered]),
        ("P99 TTFT, ms", [(p.concurrency, p.p99_ttft_ms) for p in ordered if p.p99_ttft_ms is not None]),
        ("P99 TPOT, ms", [(p.concurrency, p.p99_tpot_ms) for p in ordered if p.p99_tpot_ms is not None]),
    )
    return "\n".join(draw(_measured(title, pairs)) for title, pairs in panels if len(pairs) >= 2)


def _measured(title: str, pairs: _Pairs) -> Panel:
    return Panel(f"{title} against requests in flight", lines=(Series(pairs, "braille"),), dots=(Series(pairs, "●"),))


def draw(panel: Panel, width: int = _WIDTH, height: int = _HEIGHT, ink: Ink = Ink.PLAIN) -> str:
    """The panel as lines of text. It has at least one point."""
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless" if ink is Ink.PLAIN else "simple")
    figure.plot_size(width, height)
    for series in panel.lines:
        line = figure.signal([x for x, _ in series.points], [y for _, y in series.points], marker=series.marker)
        line.lines()
        figure.draw(line)
    for series in panel.dots:
        figure.draw(figure.signal([x for x, _ in series.points], [y for _, y in series.points], marker=series.marker))
    figure.title(panel.title)
    highest = max(y for series in (*panel.lines, *panel.dots) for _, y in series.points)
    figure.ruler("y").lim(0, panel.top or max(1e-9, 1.1 * highest))
    if panel.right is not None:
        figure.ruler("x").lim(0, panel.right)
    picture: str = figure.build().string()
    return (plotext.uncolorize(picture) if ink is Ink.PLAIN else picture).rstrip("\n")
