"""What the plans return."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.tuning_run import TuningRunStatus
from kneekeeper.domain.actions import ProfileAction, RunAction, StoreSamples


@dataclass(frozen=True)
class RunDecision:
    """`evidence` is stored first, then `status`, then `actions` are done; any of it may be cut off and redone."""

    status: TuningRunStatus
    actions: tuple[RunAction, ...] = ()
    evidence: tuple[StoreSamples, ...] = ()
    next_tick_s: float = 2.0
    release: bool = False  # nothing of ours is left: the finalizer may go


@dataclass(frozen=True)
class ProfileDecision:
    """`status` is stored first, then `actions` are done."""

    status: ServingProfileStatus
    actions: tuple[ProfileAction, ...] = ()
    next_tick_s: float = 30.0
    release: bool = False
