"""Control stages: one fixed load, repeated between the others, tells whether the machine is still the same.

Stages between two neighbouring controls that disagree say as much of the machine (a noisy neighbour,
throttling) as of the engine. They are void.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kneekeeper.api.stage import NOT_STEADY
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict

_HELD_BY_CONTROLS = (StageKind.RAMP, StageKind.PREFILL, StageKind.OPEN)

_MUST_BE_STEADY = (StageKind.RAMP, StageKind.OPEN)
"""What the fits take for the engine's behaviour at a level. A prefill stage has one user and no queue, and is often
too short to tell; warm-ups are not steady by intention; two controls that disagree tell it themselves."""


def is_usable(stage: StageSummary) -> bool:
    """Whether the stage says something of the engine at its level."""
    return stage.verdict not in (Verdict.INVALID, Verdict.VOID) and stage.requests > 0 and not is_unsteady(stage)


def is_unsteady(stage: StageSummary) -> bool:
    """Whether the stage was cut off before it was steady: its means and P99s are those of a warm-up or a drift."""
    return stage.kind in _MUST_BE_STEADY and stage.ended_by == NOT_STEADY


def usable(stages: Sequence[StageSummary], *kinds: StageKind) -> list[StageSummary]:
    """The stages of these kinds that say something of the engine."""
    return [stage for stage in stages if stage.kind in kinds and is_usable(stage)]


def difference(first: StageSummary, second: StageSummary) -> float:
    """By which share two control stages differ, in median TPOT or in output tokens per second."""
    ratios = [
        max(a, b) / min(a, b)
        for a, b in (
            (first.p50_tpot, second.p50_tpot),
            (first.output_tokens_per_second, second.output_tokens_per_second),
        )
        if a and b
    ]
    return max(ratios, default=1.0) - 1.0


@dataclass(frozen=True)
class Segment:
    """The stages between two neighbouring controls; `drift` None: the closing control has not been run."""

    stages: tuple[StageSummary, ...]
    drift: float | None

    def is_void(self, tolerance: float) -> bool:
        return self.drift is not None and self.drift > tolerance


def segments(stages: Sequence[StageSummary]) -> list[Segment]:
    """What lies behind each usable control stage, the last one still open; nothing without a control."""
    found: list[Segment] = []
    control: StageSummary | None = None
    between: list[StageSummary] = []
    for stage in stages:
        if stage.kind is StageKind.CONTROL and is_usable(stage):
            if control is not None:
                found.append(Segment(tuple(between), difference(control, stage)))
            control, between = stage, []
        elif stage.kind in _HELD_BY_CONTROLS and control is not None:
            between.append(stage)
    return [*found, Segment(tuple(between), None)] if control is not None else []


def mark_void(stages: Sequence[StageSummary], tolerance: float) -> tuple[StageSummary, ...]:
    """The same stages, those between disagreeing controls with the verdict Void and the reason.

    Idempotent. A verdict of Invalid stays. `tolerance` is a share, 0.15 for 15%.
    """
    drifts = {
        stage.name: segment.drift
        for segment in segments(stages)
        if segment.is_void(tolerance)
        for stage in segment.stages
    }
    return tuple(
        stage.with_changes(verdict=Verdict.VOID, message=_why_void(drifts[stage.name], tolerance))
        if stage.name in drifts and is_usable(stage)
        else stage
        for stage in stages
    )


def _why_void(drift: float | None, tolerance: float) -> str:
    return f"The control stages around it differ by {drift or 0:.0%}, more than {tolerance:.0%}."
