"""Creating and deleting what kneekeeper owns: done twice it is done once, and never to others' objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kneekeeper.kube.children import is_owned_by
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import AlreadyExists, KubeError, NotFound
from kneekeeper.kube.resources import JOBS, Kind, Resource


class ForeignObject(KubeError):
    """An object with the name of one of ours belongs to somebody else; it is left alone."""

    def __init__(self, kind: Kind, namespace: str, name: str) -> None:
        super().__init__(
            f"{kind.name} {namespace}/{name} exists and is not of this owner. Delete or rename it, since the "
            "name is needed."
        )


async def ensure(kube: Kube, kind: Kind, body: Resource, owner: Mapping[str, Any]) -> bool:
    """The object exists; True when it was made now. One that is ours is never overwritten.

    Raises ForeignObject, and other KubeErrors.
    """
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    try:
        await kube.create(kind, namespace, body)
    except AlreadyExists:
        await _ours(kube, kind, namespace, name, owner)
        return False
    return True


async def exists(kube: Kube, kind: Kind, namespace: str, name: str, owner: Mapping[str, Any]) -> bool:
    """Whether the object is there and ours. Raises ForeignObject, and other KubeErrors but NotFound."""
    return await _ours(kube, kind, namespace, name, owner) is not None


async def ensure_working_job(kube: Kube, body: Resource, owner: Mapping[str, Any]) -> None:
    """The Job exists and has not ended. One that ended is deleted, and made again in the next tick.

    Raises as `ensure` does.
    """
    if await ensure(kube, JOBS, body, owner):
        return
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    job = await _ours(kube, JOBS, namespace, name, owner)
    if job is not None and has_ended(job):
        await remove(kube, JOBS, namespace, name, owner)


def has_ended(job: Resource) -> bool:
    """Whether the Job will run no more pods."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in conditions)


async def remove(kube: Kube, kind: Kind, namespace: str, name: str, owner: Mapping[str, Any]) -> None:
    """The object is gone or going, if it is ours. Raises ForeignObject, and other KubeErrors but NotFound."""
    found = await _ours(kube, kind, namespace, name, owner)
    if found is None:
        return
    try:
        await kube.delete(kind, namespace, name, uid=found["metadata"]["uid"])
    except NotFound:
        return


async def _ours(kube: Kube, kind: Kind, namespace: str, name: str, owner: Mapping[str, Any]) -> Resource | None:
    try:
        found = await kube.get(kind, namespace, name)
    except NotFound:
        return None
    if not is_owned_by(found, owner):
        raise ForeignObject(kind, namespace, name)
    return found
