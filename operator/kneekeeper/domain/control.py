"""Control stages: one fixed load, repeated between the others, tells whether the machine is still the same.

Stages between two neighbouring controls that disagree say as much of the machine (a noisy neighbour,
throttling) as of the engine. They are void.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kneekeeper.api.stage import NOT_STEADY
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict

_HELD_BY_CONTROLS = (StageKind.RAMP, StageKind.PREFILL, StageKind.STEPS, StageKind.OPEN)

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


@dataclass(frozen=True)
class Drift:
    """How two control stages differ most: `measure` changed by the factor 1 + `share` or its inverse."""

    share: float
    measure: str
    first: str
    second: str

    def message(self, tolerance: float) -> str:
        """For people; names the measure, its direction and both controls."""
        return (
            f"The machine drifted: {self.measure} by {self.share:.0%} from {self.first} to {self.second}, more than "
            f"the {tolerance:.0%} that is allowed."
        )


def drift_between(first: StageSummary, second: StageSummary) -> Drift:
    """The larger of the changes in median TPOT and in output tokens per second."""
    pairs = (
        ("the median TPOT", first.p50_tpot, second.p50_tpot),
        ("the output tokens per second", first.output_tokens_per_second, second.output_tokens_per_second),
    )
    found = [
        Drift(max(a, b) / min(a, b) - 1.0, f"{name} {'rose' if b > a else 'fell'}", first.name, second.name)
        for name, a, b in pairs
        if a and b
    ]
    return max(found, key=lambda drift: drift.share, default=Drift(0.0, "nothing changed", first.name, second.name))


@dataclass(frozen=True)
class Segment:
    """The stages between two neighbouring controls; `change` None: the closing control has not been run."""

    stages: tuple[StageSummary, ...]
    change: Drift | None

    @property
    def drift(self) -> float | None:
        """By which share the two controls differ."""
        return None if self.change is None else self.change.share

    def is_void(self, tolerance: float) -> bool:
        return self.change is not None and self.change.share > tolerance


def segments(stages: Sequence[StageSummary]) -> list[Segment]:
    """What lies behind each usable control stage, the last one still open; nothing without a control."""
    found: list[Segment] = []
    control: StageSummary | None = None
    between: list[StageSummary] = []
    for stage in stages:
        if stage.kind is StageKind.CONTROL and is_usable(stage):
            if control is not None:
                found.append(Segment(tuple(between), drift_between(control, stage)))
            control, between = stage, []
        elif stage.kind in _HELD_BY_CONTROLS and control is not None:
            between.append(stage)
    return [*found, Segment(tuple(between), None)] if control is not None else []


def mark_void(stages: Sequence[StageSummary], tolerance: float) -> tuple[StageSummary, ...]:
    """The same stages, those between disagreeing controls with the verdict Void and the reason.

    Idempotent. A verdict of Invalid stays. `tolerance` is a share, 0.15 for 15%.
    """
    reasons = {
        stage.name: segment.change.message(tolerance)
        for segment in segments(stages)
        if segment.change is not None and segment.is_void(tolerance)
        for stage in segment.stages
    }
    return tuple(
        stage.with_changes(verdict=Verdict.VOID, message=reasons[stage.name])
        if stage.name in reasons and is_usable(stage)
        else stage
        for stage in stages
    )
