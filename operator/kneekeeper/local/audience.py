"""Showing a run while it goes on: a line that moves in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from kneekeeper.api.stage import StageStatus
from kneekeeper.api.tuning_run import StageSummary, TuningRunStatus
from kneekeeper.local.tables import duration
from kneekeeper.local.wording import for_tune


class Narrator:
    """Tells each step and each decided stage once; in a terminal also how the stage in flight moves."""

    def __init__(self, console: Console, wording: Callable[[str], str] = for_tune) -> None:
        """`wording` makes the plan's messages, which name fields of a profile, fit the place."""
        self._wording = wording
        self._console = console
        self._live = Live(console=console, transient=True, refresh_per_second=4) if console.is_terminal else None
        self._spinner = Spinner("dots")
        self._said = ""
        self._stages: int | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: TuningRunStatus, progress: StageStatus | None) -> None:
        """Tell what is new."""
        if self._stages is None:
            self._stages = len(status.stages)
            if status.stages:
                self._say(f"Goes on after {len(status.stages)} decided stages.")
        for stage in status.stages[self._stages :]:
            self._say(_line(stage, self._wording))
        self._stages = len(status.stages)
        message = self._wording(status.message)
        if message != self._said and not _tells_of_a_stage(status, message):
            self._say(message)
            self._said = message
        if self._live is not None:
            self._spinner.update(text=Text(self._now(status, progress)))
            self._live.update(self._spinner)

    def _say(self, text: str) -> None:
        if text:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _now(self, status: TuningRunStatus, progress: StageStatus | None) -> str:
        name = status.current_stage.name if status.current_stage is not None else "stage"
        if progress is None:
            return self._wording(status.message)
        return (
            f"{name}: {progress.elapsed_s:.0f} s, {progress.succeeded} answered, {progress.in_flight} in flight, "
            f"{progress.requests_per_s:.3g} requests/s, {progress.output_tokens_per_s:.4g} tokens/s"
        )


def _tells_of_a_stage(status: TuningRunStatus, message: str) -> bool:
    """Each decided stage has a line of its own; one that says that it runs would say everything twice."""
    last = status.stages[-1].name if status.stages else None
    return status.current_stage is not None or message == f"Stage {last} runs."


def _line(stage: StageSummary, wording: Callable[[str], str]) -> str:
    load = f"{stage.users} users" if stage.users is not None else f"{stage.offered_requests_per_second or 0:.3g} req/s"
    verdict = f", {stage.verdict.upper()}" if stage.verdict is not None else ""
    why = f" ({wording(stage.message)})" if stage.message and stage.verdict is not None else ""
    return (
        f"  {stage.name}: {load}, {stage.requests_per_second:.3g} req/s, TTFT p99 {duration(stage.p99_ttft)}, "
        f"TPOT p99 {duration(stage.p99_tpot)}{verdict}{why}"
    )
