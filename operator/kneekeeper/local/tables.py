"""Tables of load levels, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from kneekeeper.api.quantities import format_duration
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.local.chart import Point, chart

_NOT_SHOWN = (StageKind.WARM_UP,)
_ON_THE_CHART = (StageKind.RAMP,)


def table_of_stages(stages: Iterable[StageSummary]) -> Table:
    """One row for each stage but warm-ups."""
    table = Table(title="Stages", title_justify="left")
    for heading in ("stage", "seqs/tokens"):
        table.add_column(heading, no_wrap=True)
    for heading in ("load", "req/s", "tok/s", "in flight", "TTFT p50", "p99", "TPOT p50", "p99", "missed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for stage in stages:
        if stage.kind not in _NOT_SHOWN:
            table.add_row(*_row(stage))
    return table


def _row(stage: StageSummary) -> tuple[str, ...]:
    offered = stage.offered_requests_per_second
    return (
        stage.name,
        str(stage.setting),
        f"{stage.users} users" if stage.users is not None else f"{offered or 0.0:.3g}/s",
        f"{stage.requests_per_second:.3g}",
        f"{stage.output_tokens_per_second:.4g}",
        f"{stage.mean_concurrency:.3g}",
        duration(stage.p50_ttft),
        duration(stage.p99_ttft),
        duration(stage.p50_tpot),
        duration(stage.p99_tpot),
        f"{stage.misses or 0}/{stage.requests}",
        (stage.verdict or "").upper(),
    )


def duration(seconds: float | None) -> str:
    """Three significant digits, or a dash."""
    return "-" if seconds is None else format_duration(float(f"{seconds:.3g}"))


def chart_of_stages(stages: Iterable[StageSummary]) -> str:
    """The ramp as a picture; empty where there is too little to show."""
    ramp = [
        stage
        for stage in stages
        if stage.kind in _ON_THE_CHART and stage.verdict not in (Verdict.INVALID, Verdict.VOID) and stage.requests
    ]
    return chart(
        [
            Point(s.mean_concurrency, s.requests_per_second, milliseconds(s.p99_ttft), milliseconds(s.p99_tpot))
            for s in ramp
        ]
    )


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
