"""What the API server refuses to make, as a reason that people can act on.

Quotas and admission policies answer 403, as a missing permission does; webhooks answer with any code they like.
"""

from __future__ import annotations

from kneekeeper.domain.observation import Obstacle, ObstacleReason
from kneekeeper.kube.errors import Forbidden, Invalid, KubeError

_OF_QUOTA = ("exceeded quota", "failed quota", "insufficient quota")
_OF_PERMISSION = "cannot create resource"


def obstacle_of_refusal(error: KubeError, what: str) -> Obstacle | None:
    """Why `what` (for people: "The clone") was refused; None where asking again may help, or the operator's own
    permissions are at fault."""
    message = str(error)
    if not isinstance(error, (Forbidden, Invalid)) or _OF_PERMISSION in message:
        return None
    if any(mark in message for mark in _OF_QUOTA):
        return Obstacle(
            ObstacleReason.QUOTA_EXCEEDED,
            f"{what} does not fit into a quota of the namespace: {message}. Raise the quota, or let a replica be "
            "borrowed (probe.allow: BorrowReplica), which frees its share.",
        )
    return Obstacle(
        ObstacleReason.POD_REFUSED,
        f"{what} is refused by the cluster: {message}. Change the policy that refuses it, or the workload's template.",
    )
