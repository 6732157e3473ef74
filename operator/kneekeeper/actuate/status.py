"""The one writer of status."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

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

    Nothing is written when nothing would change. Raises Conflict when the object changed since it was
    observed: the tick is abandoned, since it decided on what is no longer so. Raises pydantic.ValidationError
    when the status breaks its own model, before anything is sent.
    """
    if status == read and observed.get("status"):
        return observed
    new = type(status).model_validate(status.to_resource()).to_resource()
    stored = _stored(type(status), observed) if read is None else read.to_resource()
    if observed.get("status") and new == stored:
        return observed
    metadata = observed["metadata"]
    body = {**observed, "apiVersion": kind.api_version, "kind": kind.name, "status": new}
    return await kube.replace_status(kind, metadata["namespace"], metadata["name"], body)


def _stored(model: type[AnyStatus], observed: Resource) -> Resource | None:
    """The stored status in the model's own form; None where it is of another version."""
    try:
        return model.model_validate(observed.get("status") or {}).to_resource()
    except ValidationError:
        return None
