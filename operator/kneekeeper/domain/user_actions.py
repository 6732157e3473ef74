"""What a person may ask of a profile beside editing it, as RFC 6902 operations on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kneekeeper.domain.names import ANNOTATION_APPROVE, ANNOTATION_RETUNE

Operations = list[dict[str, Any]]

SUSPEND: Operations = [{"op": "add", "path": "/spec/suspend", "value": True}]
RESUME: Operations = [{"op": "add", "path": "/spec/suspend", "value": False}]


def retuning(metadata: Mapping[str, Any], now: datetime) -> Operations:
    """Ask for a run: any new value of the annotation does."""
    return _annotating(metadata, ANNOTATION_RETUNE, now.astimezone(UTC).replace(microsecond=0).isoformat())


def approving(metadata: Mapping[str, Any], recommendation_hash: str) -> Operations:
    """Approve one recommendation, and no later one."""
    return _annotating(metadata, ANNOTATION_APPROVE, recommendation_hash)


def _annotating(metadata: Mapping[str, Any], name: str, value: str) -> Operations:
    """An annotation; the map itself where the profile has none."""
    if not metadata.get("annotations"):
        return [{"op": "add", "path": "/metadata/annotations", "value": {name: value}}]
    return [
        {"op": "add", "path": f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}", "value": value}
    ]
