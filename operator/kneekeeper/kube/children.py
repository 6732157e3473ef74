"""What a run's children carry so that they are found again, and how one tells whose an object is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kneekeeper.api.model import API_VERSION
from kneekeeper.domain.names import LABEL_ROLE, LABEL_RUN, ROLE_CLONE
from kneekeeper.kube.resources import Kind, Resource

AGENT_CONTAINER = "agent"
"""In the pod of the load agent's Job."""

Metadata = Mapping[str, Any]


def child_labels(run: str, role: str) -> dict[str, str]:
    """The labels of a child of this run."""
    return {LABEL_RUN: run, LABEL_ROLE: role}


def child_selector(run: str, role: str) -> str:
    """The label selector that finds these children."""
    return f"{LABEL_RUN}={run},{LABEL_ROLE}={role}"


def clone_labels(run: str, template_labels: Mapping[str, str], keep: Collection[str]) -> dict[str, str]:
    """All labels of a clone: none of the template's but those whose keys the user lists."""
    return {k: v for k, v in template_labels.items() if k in keep} | child_labels(run, ROLE_CLONE)


def owner_reference(owner: Kind, metadata: Metadata) -> Resource:
    """Makes an object a dependent of one of kneekeeper's own resources, gone when that is gone.

    It says `controller`, so that no ReplicaSet with a fitting selector adopts a pod of ours.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": owner.name,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_owned_by(resource: Resource, owner: Metadata) -> bool:
    """Whether the object is a dependent of this owner."""
    references = resource.get("metadata", {}).get("ownerReferences") or []
    return any(reference.get("uid") == owner["uid"] for reference in references)
