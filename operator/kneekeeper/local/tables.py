"""Tables of load levels, for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.table import Table

from kneekeeper.api.quantities import format_duration
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.local.chart import Point, chart

_NOT_SHOWN = (StageKind.WARM_UP,)
_ON_THE_CHART = (StageKind.RAMP,)


WIDE = 134
"""Columns of a terminal in which everything has room; in a narrower one the less telling columns are left out."""

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Column(Generic[_Row]):
    """One column; `detail` is shown where there is room."""

    heading: str
    cell: Callable[[_Row], str]
    detail: bool = False
    justify: JustifyMethod = "right"


def table(title: str, columns: Sequence[Column[_Row]], rows: Iterable[_Row], width: int) -> Table:
    """A table for a terminal of this width."""
    shown = [column for column in columns if width >= WIDE or not column.detail]
    gap = 1 if width >= WIDE else 0  # beside the one that the box has
    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, gap, 0, 0))
    for column in shown:
        drawn.add_column(column.heading, justify=column.justify, no_wrap=True)
    for row in rows:
        drawn.add_row(*(column.cell(row) for column in shown))
    return drawn


_STAGES: tuple[Column[StageSummary], ...] = (
    Column("stage", lambda s: s.name, justify="left"),
    Column("seqs/tokens", lambda s: str(s.setting), justify="left"),
    Column("load", lambda s: load_of(s.users, s.offered_requests_per_second)),
    Column("req/s", lambda s: f"{s.requests_per_second:.3g}"),
    Column("tok/s", lambda s: f"{s.output_tokens_per_second:.4g}", detail=True),
    Column("in flight", lambda s: f"{s.mean_concurrency:.3g}", detail=True),
    Column("TTFT p50", lambda s: duration(s.p50_ttft), detail=True),
    Column("TTFT p99", lambda s: duration(s.p99_ttft)),
    Column("TPOT p50", lambda s: duration(s.p50_tpot), detail=True),
    Column("TPOT p99", lambda s: duration(s.p99_tpot)),
    Column("missed", lambda s: f"{s.misses or 0}/{s.requests}", detail=True),
    Column("verdict", lambda s: (s.verdict or "").upper(), justify="left"),
)


def table_of_stages(stages: Iterable[StageSummary], width: int) -> Table:
    """One row for each stage but warm-ups."""
    return table("Stages", _STAGES, (stage for stage in stages if stage.kind not in _NOT_SHOWN), width)


def load_of(users: int | None, rate: float | None) -> str:
    """A closed loop by its users, an open one by its rate."""
    return f"{users} users" if users is not None else f"{rate or 0.0:.3g}/s"


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
