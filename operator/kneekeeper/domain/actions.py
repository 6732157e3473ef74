"""What a plan may want done. Every action is idempotent: done twice, it is done once.

`actuate` carries them out after the status that explains them has been stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.api.model import Setting
from kneekeeper.api.probe import LiveTuning
from kneekeeper.api.rollout import ContainerWords, FieldChange
from kneekeeper.api.stage import Samples, StageSpec
from kneekeeper.api.tuning_run import Trigger


@dataclass(frozen=True)
class EnsureAgent:
    """The load agent's Secret and Job exist."""


@dataclass(frozen=True)
class DeleteAgent:
    """The load agent's Job and Secret are gone."""


@dataclass(frozen=True)
class EnsureClone:
    """The pod of the `start`-th engine start exists, with these words in its engine container."""

    start: int
    container: str
    words: ContainerWords
    deadline_s: int
    live_tuning: LiveTuning = LiveTuning.DISABLED
    """Allowed: the live-tuning plugin is delivered to it."""


@dataclass(frozen=True)
class DeleteClone:
    """The pod of the `start`-th engine start is gone or going."""

    start: int


@dataclass(frozen=True)
class SetLimits:
    """The engine at this address runs with `setting`, without a restart."""

    host: str
    setting: Setting


@dataclass(frozen=True)
class StartStage:
    """The agent works on this stage, or has done so, with the agents at these addresses (`10.0.0.7:8080`)."""

    spec: StageSpec
    helpers: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoreSamples:
    """The stage's samples lie in their ConfigMap."""

    stage: str
    samples: Samples


@dataclass(frozen=True)
class ScaleWorkload:
    """Replicas go from `expected` to `wanted`; anything but `expected` is left alone."""

    expected: int
    wanted: int


@dataclass(frozen=True)
class WriteWords:
    """The container's words go from `before` to `after`; anything but `before` is left alone.

    Where `fields` are given, those are written instead: the words follow from them.
    """

    container: str
    before: ContainerWords
    after: ContainerWords
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True)
class EnsureLimits:
    """The profile's ConfigMap exists, and sets this where it set nothing that an engine would take."""

    config_map: str
    setting: Setting


@dataclass(frozen=True)
class CreateRun:
    """A TuningRun of this name exists."""

    name: str
    trigger: Trigger
    schedule: int | None = None
    """The entry of spec.schedules that it is for; None for the profile's own workload and bounds."""


@dataclass(frozen=True)
class DeleteRun:
    """This TuningRun is gone or going."""

    name: str


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True)
class EmitEvent:
    """People are told, once per change of state."""

    type: EventType
    reason: str
    message: str


RunAction = (
    EnsureAgent
    | DeleteAgent
    | EnsureClone
    | DeleteClone
    | SetLimits
    | StartStage
    | StoreSamples
    | ScaleWorkload
    | EmitEvent
)
ProfileAction = WriteWords | EnsureLimits | CreateRun | DeleteRun | EmitEvent
