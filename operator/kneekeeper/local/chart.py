"""A picture in the terminal: throughput and P99 latencies against the number of requests in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotext

_WIDTH, _HEIGHT = 92, 14


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
    return "\n".join(_panel(title, pairs) for title, pairs in panels if len(pairs) >= 2)


def _panel(title: str, pairs: Sequence[tuple[float, float]]) -> str:
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(_WIDTH, _HEIGHT)
    line = figure.signal([x for x, _ in pairs], [y for _, y in pairs], marker="braille")
    line.lines()
    figure.draw(line)
    figure.draw(figure.signal([x for x, _ in pairs], [y for _, y in pairs], marker="●"))
    figure.title(f"{title} against requests in flight")
    figure.ruler("y").lim(0, max(1e-9, 1.1 * max(y for _, y in pairs)))
    picture: str = plotext.uncolorize(figure.build().string())
    return picture.rstrip("\n")
