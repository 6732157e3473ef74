"""Showing a probe while it goes on: bars in a terminal, a line for each level elsewhere; then a table and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from kneekeeper.api.stage import StageSpec, StageStatus
from kneekeeper.domain.load_level import LoadLevel
from kneekeeper.local.chart import Point, chart
from kneekeeper.local.probing import ProbeResult
from kneekeeper.local.tables import Column, duration, milliseconds, table
from kneekeeper.local.wording import verdict_word


class ProbeWatcher:
    """Tells of each level once it has ended; in a terminal also how it moves."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = (
            Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            if console.is_terminal
            else None
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begins(self, result: ProbeResult) -> None:
        self._say(f"Model {result.model} at {result.url}.")
        if not result.has_metrics:
            self._say("The server has no vLLM metrics at /metrics: the client's numbers are not compared with its own.")

    def progress(self, name: str, spec: StageSpec, status: StageStatus) -> None:
        if self._bars is None:
            return
        rate = f"{status.requests_per_s:.3g} requests/s, {status.output_tokens_per_s:.4g} tokens/s"
        done = status.succeeded + status.failed + status.timed_out
        if self._task is None:
            self._task = self._bars.add_task(name, total=spec.limits.max_requests, rate=rate)
        self._bars.update(self._task, completed=done, rate=rate)

    def ended(self, level: LoadLevel) -> None:
        if self._bars is not None and self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None
        verdict = f", {verdict_word(level.verdict)}" if level.verdict is not None else ""
        why = f" ({level.message})" if level.message and level.verdict is not None else ""
        ended = f"{level.failed} of {level.requests} failed"
        if level.broken_off:
            ended += f", {level.broken_off} broken off"
        self._say(
            f"  {level.name}: {level.requests_per_s:.3g} requests/s, TTFT p99 {duration(level.ttft.p99_s)}, "
            f"TPOT p99 {duration(level.tpot.p99_s)}, {ended}{verdict}{why}"
        )

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


_LEVELS: tuple[Column[LoadLevel], ...] = (
    Column("level", lambda level: level.name, justify="left"),
    Column("warm-up", lambda level: str(level.warmup_requests), detail=True),
    Column("requests", lambda level: str(level.requests)),
    Column("failed", lambda level: str(level.failed)),
    Column("req/s", lambda level: f"{level.requests_per_s:.3g}"),
    Column("tok/s", lambda level: f"{level.output_tokens_per_s:.4g}", detail=True),
    Column("in flight", lambda level: f"{level.mean_concurrency:.3g}", detail=True),
    Column("TTFT p50", lambda level: duration(level.ttft.p50_s), detail=True),
    Column("TTFT p99", lambda level: duration(level.ttft.p99_s)),
    Column("TPOT p50", lambda level: duration(level.tpot.p50_s), detail=True),
    Column("TPOT p99", lambda level: duration(level.tpot.p99_s)),
    Column("E2E p99", lambda level: duration(level.e2e.p99_s), detail=True),
    Column("missed", lambda level: str(level.misses)),
    Column("verdict", lambda level: verdict_word(level.verdict), justify="left"),
)


def table_of_levels(levels: Sequence[LoadLevel], width: int) -> Table:
    """One row for each level."""
    return table("Load levels", _LEVELS, levels, width)


def chart_of_levels(levels: Sequence[LoadLevel]) -> str:
    """Throughput and P99s as pictures; empty below two levels."""
    return chart(
        [
            Point(
                level.mean_concurrency,
                level.requests_per_s,
                milliseconds(level.ttft.p99_s),
                milliseconds(level.tpot.p99_s),
            )
            for level in levels
            if level.requests
        ]
    )
