"""The tuned workload as an object of the API: its kind, and its containers' words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kneekeeper.api.profile_status import ContainerWords
from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.kube.resources import DEPLOYMENTS, Kind


class UnsupportedTarget(Exception):
    """The target's kind can neither be read nor written; the message says which can."""


def kind_of(target: TargetRef) -> Kind:
    """Raises UnsupportedTarget for anything but an apps/v1 Deployment."""
    if (target.api_version, target.kind) != (DEPLOYMENTS.api_version, DEPLOYMENTS.name):
        raise UnsupportedTarget(
            f"{target.api_version} {target.kind} is not supported yet; target an apps/v1 Deployment."
        )
    return DEPLOYMENTS


def words_of(container: Mapping[str, Any]) -> ContainerWords:
    """Command and args; an empty list means the same as none, so both are None.

    Not validated: a container that no status could hold is read all the same, and `domain.target` refuses it.
    """
    return ContainerWords.model_construct(command=container.get("command") or None, args=container.get("args") or None)
