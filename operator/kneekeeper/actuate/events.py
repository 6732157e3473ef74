"""Events: people are told once for each change of state."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from kneekeeper.api.model import API_VERSION, GROUP
from kneekeeper.domain.actions import EmitEvent
from kneekeeper.domain.names import FIELD_MANAGER
from kneekeeper.domain.redaction import redact
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import AlreadyExists
from kneekeeper.kube.resources import EVENTS, Kind, Resource

LONGEST_NOTE = 1024
LONGEST_INSTANCE = 128
_LONGEST_NAME_PREFIX = 230


def build_event(kind: Kind, metadata: dict[str, Any], action: EmitEvent, instance: str, now: datetime) -> Resource:
    """An Event of events.k8s.io/v1 about the object.

    Its name follows from the object's resourceVersion and the content: the same tick done twice tells once,
    and the same change a day later tells again.
    """
    identity = (metadata["uid"], metadata.get("resourceVersion", ""), action.reason, action.message)
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.name,
        "metadata": {
            "name": f"{metadata['name'][:_LONGEST_NAME_PREFIX]}.{digest}",
            "namespace": metadata["namespace"],
        },
        "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": str(action.type),
        "reason": action.reason,
        "action": action.reason,
        "note": redact(action.message)[:LONGEST_NOTE],
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": kind.name,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "reportingController": f"{GROUP}/{FIELD_MANAGER}",
        "reportingInstance": instance[:LONGEST_INSTANCE],
    }


async def emit(kube: Kube, event: Resource) -> None:
    """Tell it, unless it was told."""
    try:
        await kube.create(EVENTS, event["metadata"]["namespace"], event)
    except AlreadyExists:
        return
