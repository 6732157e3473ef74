"""The one writer of status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from kneekeeper.api.model import Condition
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.tuning_run import TuningRunStatus
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import Kind, Resource

AnyStatus = TypeVar("AnyStatus", ServingProfileStatus, TuningRunStatus)


async def write_status(
    kube: Kube, kind: Kind, observed: Resource, status: AnyStatus, read: AnyStatus | None = None
) -> Resource:
    """Store the status of the object that was observed; the object as it then stands.

    `read` is the status as it was read from that object, where the caller has it.

    Nothing is written when nothing would change, and what a later version wrote beside it is kept. Raises Conflict
    when the object changed since it was observed: the tick is abandoned, since it decided on what is no longer so.
    Raises pydantic.ValidationError when the status breaks its own model, before anything is sent.
    """
    stored = observed.get("status")
    if stored and status == read:
        return observed
    new = type(status).model_validate(status.to_resource()).to_resource()
    known = read.to_resource() if read is not None else _known(type(status), stored)
    if stored and new == known:
        return observed
    return await _replace(kube, kind, observed, new if stored == known else _keeping(new, known, stored))


async def write_conditions(kube: Kube, kind: Kind, observed: Resource, conditions: Sequence[Condition]) -> None:
    """Put these into a status that is not understood, and touch nothing else. Raises Conflict as `write_status`."""
    stored: Resource = observed.get("status") or {}
    told = {condition.type: condition.to_resource() for condition in conditions}
    kept = [told.pop(each.get("type"), each) for each in stored.get("conditions") or []]
    status = stored | {"conditions": [*kept, *told.values()]}
    if status != stored:
        await _replace(kube, kind, observed, status)


async def _replace(kube: Kube, kind: Kind, observed: Resource, status: Resource) -> Resource:
    metadata = observed["metadata"]
    body = {**observed, "apiVersion": kind.api_version, "kind": kind.name, "status": status}
    return await kube.replace_status(kind, metadata["namespace"], metadata["name"], body)


def _known(model: type[AnyStatus], stored: Resource | None) -> Resource | None:
    """The stored status in the model's own form; None where it is of another version."""
    try:
        return model.model_validate(stored or {}).to_resource()
    except ValidationError:
        return None


def _keeping(new: Any, known: Any, stored: Any) -> Any:
    """`new`, with what is stored and not known, as by a later version, wherever it still has a place."""
    if new == known:
        return stored
    if isinstance(new, dict) and isinstance(known, dict) and isinstance(stored, dict):
        unknown = {name: value for name, value in stored.items() if name not in known}
        return unknown | {name: _keeping(value, known.get(name), stored.get(name)) for name, value in new.items()}
    if isinstance(new, list) and isinstance(known, list) and isinstance(stored, list):
        return [stored[known.index(each)] if each in known else each for each in new]
    return new
