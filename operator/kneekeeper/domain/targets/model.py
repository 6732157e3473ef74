"""What is asked of a target, and the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from kneekeeper.api.model import Setting
from kneekeeper.domain.arguments import EngineArguments, Refusal, VariableUse, WrittenLimits
from kneekeeper.domain.manifests import ManifestObject, Path, value_at


class Outcome(StrEnum):
    """What is done with the target."""

    REWRITE = "rewrite"
    RECOMMEND_ONLY = "recommend-only"  # nothing is written: somebody else has to, and is told what
    REFUSE = "refuse"  # nothing is written: it is not understood, or would do harm


@dataclass(frozen=True)
class Asked:
    """The limits to write. `part` names the container, or the model of a kind that holds several."""

    setting: Setting
    part: str | None
    variables: VariableUse = VariableUse.SET


@dataclass(frozen=True)
class Edit:
    """One value of one object that changes."""

    subject: ManifestObject
    path: Path
    value: Any


@dataclass(frozen=True)
class Engine:
    """A vLLM engine of a target, as it is declared today."""

    part: str | None
    arguments: EngineArguments
    before: WrittenLimits
    image: str = ""  # "" where the controller chooses it


@dataclass(frozen=True)
class Answer:
    """`reason` is a constant, `message` a sentence with the next step; `edits` are made or suggested."""

    outcome: Outcome
    reason: str
    message: str
    part: str | None = None
    engine: Engine | None = None
    edits: tuple[Edit, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def refused(cls, refusal: Refusal, part: str | None = None, engine: Engine | None = None) -> Answer:
        return cls(Outcome.REFUSE, refusal.reason, refusal.message, part, engine)


REWRITTEN = "Rewritten"
UNCHANGED = "Unchanged"


def rewriting(engine: Engine, edits: Sequence[Edit], warnings: Sequence[str]) -> Answer:
    """The answer of an adapter that can write."""
    changed = tuple(edit for edit in edits if _changes(edit))
    if not changed:
        return Answer(Outcome.REWRITE, UNCHANGED, "Both limits have these values already.", engine.part, engine)
    message = "Both limits are set; nothing else changes."
    return Answer(Outcome.REWRITE, REWRITTEN, message, engine.part, engine, changed, tuple(warnings))


def _changes(edit: Edit) -> bool:
    return bool(value_at(edit.subject.value, edit.path) != edit.value)


@dataclass(frozen=True)
class Objects:
    """All objects that are at hand."""

    items: tuple[ManifestObject, ...]

    def find(self, kind: str, name: str, namespace: str) -> ManifestObject | None:
        """By name; an object without a namespace fits any."""
        for item in self.items:
            same_place = not (item.namespace and namespace) or item.namespace == namespace
            if item.kind == kind and item.name == name and same_place:
                return item
        return None

    def texts_of_config_map(self, name: str, namespace: str) -> Mapping[str, str] | None:
        """The ConfigMap's data; None where it is not at hand."""
        found = self.find("ConfigMap", name, namespace)
        data = (found.value.get("data") or {}) if found else None
        return {key: str(value) for key, value in data.items()} if isinstance(data, dict) else None


class Adapter(Protocol):
    """Knows where one kind of object holds vLLM's arguments. Adapters are modules of this package."""

    def engines(self, target: ManifestObject, objects: Objects) -> Sequence[Engine | Refusal]:
        """Every engine that the object declares, and what could not be read."""
        ...

    def propose(self, target: ManifestObject, objects: Objects, asked: Asked) -> Answer:
        """The edits that give an engine the limits and change nothing else."""
        ...
