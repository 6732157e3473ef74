"""A run's curves as a picture for a terminal, with the words that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kneekeeper.api.quantities import counted
from kneekeeper.cli.show.listing import limits, milliseconds, number
from kneekeeper.cli.show.status import knee as knee_text
from kneekeeper.cli.show.status import targets
from kneekeeper.domain.views.curve import CurveView
from kneekeeper.domain.views.run import StageView
from kneekeeper.local.chart import Ink, Panel, Series, draw

LEAST_LEVELS = 2
"""Fewer make no curve."""

BEYOND_TARGET = 3.0
"""Times its target: where the axis of a latency ends, since queues make it grow without end."""

_LEAST_WIDTH, _MOST_WIDTH, _HEIGHT = 50, 120, 15
_MEASURED, _KNEE, _TARGET, _REPLICA, _BAND, _LINE = "●", "┊", "╌", "▲", "·", "braille"


def curve_text(view: CurveView, width: int, ink: Ink) -> str:
    """Throughput with its 90% band, P99 TTFT and TPOT, E2E where it has a target, one below the other; the marks."""
    drawn = [draw(panel, max(_LEAST_WIDTH, min(_MOST_WIDTH, width)), _HEIGHT, ink) for panel in _panels(view)]
    return "\n".join([*drawn, "", *_legend(view)])


def _panels(view: CurveView) -> Iterator[Panel]:
    rates = [(level.concurrency, level.requests_per_second) for level in view.levels]
    top = 1.1 * max([y for _, y in rates] + [point.upper for point in view.band])
    band = view.band
    fit = (
        Series([(point.concurrency, point.lower) for point in band], _BAND),
        Series([(point.concurrency, point.upper) for point in band], _BAND),
        Series([(point.concurrency, point.requests_per_second) for point in band], _LINE),
    )
    working = [(float(each.concurrency), 0.0) for each in view.replicas if each.concurrency is not None]
    dots = (Series(rates, _MEASURED), *((Series(working, _REPLICA),) if working else ()))
    yield Panel(
        "requests/s against requests in flight", (*(fit if band else ()), *_knee(view, top)), dots, top, _right(view)
    )
    slo = view.slo
    yield from _latency(view, "TTFT", lambda level: level.p99_ttft_ms, slo.p99_ttft_ms if slo else None)
    yield from _latency(view, "TPOT", lambda level: level.p99_tpot_ms, slo.p99_tpot_ms if slo else None)
    if slo is not None and slo.p99_e2e_ms is not None:
        yield from _latency(view, "E2E", lambda level: level.p99_e2e_ms, slo.p99_e2e_ms)


def _latency(
    view: CurveView, name: str, value: Callable[[StageView], float | None], target_ms: float | None
) -> Iterator[Panel]:
    known = [(level.concurrency, found) for level in view.levels if (found := value(level)) is not None]
    if len(known) < LEAST_LEVELS:
        return
    highest = 1.1 * max(y for _, y in known)
    top = highest if target_ms is None else min(highest, BEYOND_TARGET * target_ms)
    lines = [Series(known, _LINE)]
    if target_ms is not None and target_ms <= top:
        first, last = known[0][0], known[-1][0]
        lines.append(Series([(first, target_ms), (last, target_ms)], _TARGET))
    shown = [(x, min(y, top)) for x, y in known]
    yield Panel(
        f"P99 {name}, ms, against requests in flight",
        (*lines, *_knee(view, top)),
        (Series(shown, _MEASURED),),
        top,
        _right(view),
    )


def _right(view: CurveView) -> float:
    return max([view.levels[-1].concurrency, *(point.concurrency for point in view.band)])


def _knee(view: CurveView, top: float) -> tuple[Series, ...]:
    last = view.levels[-1].concurrency
    if view.knee is None or view.knee.concurrency > last:
        return ()
    return (Series([(view.knee.concurrency, 0.0), (view.knee.concurrency, top)], _KNEE),)


def _legend(view: CurveView) -> Iterator[str]:
    yield f"{view.run}, of profile {view.profile} in {view.namespace}"
    yield f"  {_MEASURED} measured, with the fitted curve and its 90% band"
    if view.knee is not None:
        yield f"  {_KNEE} knee: {knee_text(view.knee)}"
    else:
        yield f"  no knee ({view.verdict or 'not fitted yet'}): {view.message}"
    if view.tpot_boundary is not None:
        yield f"    P99 TPOT meets its target up to {knee_text(view.tpot_boundary)}"
    if view.slo is not None and targets(view.slo):
        yield f"  {_TARGET} promised: {', '.join(f'P99 {each}' for each in targets(view.slo).split(', '))}"
    if view.limits is not None:
        rate = view.promised_requests_per_second
        proven = f", certified for {number(rate)} requests/s a replica" if rate is not None else ""
        yield f"    limits: {limits(view.limits)}{proven}"
    known = sorted(each.concurrency for each in view.replicas if each.concurrency is not None)
    if known:
        busiest = f" to {known[-1]}" if known[-1] != known[0] else ""
        yield f"  {_REPLICA} {counted(len(known), 'replica')} now, with {known[0]}{busiest} requests in flight"
    worst = max((level.p99_ttft_ms or 0.0 for level in view.levels), default=0.0)
    if view.slo is not None and view.slo.p99_ttft_ms is not None and worst > BEYOND_TARGET * view.slo.p99_ttft_ms:
        yield f"    P99 TTFT goes up to {milliseconds(worst)}; its axis ends at {BEYOND_TARGET:.0f} times the target"
