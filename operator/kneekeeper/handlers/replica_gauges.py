"""Gauges of serving pods and of all of them together, read from the profile's status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kneekeeper.api.profile_status import ReplicaStatus
from kneekeeper.api.serving_profile import ServingProfile

Reading = tuple[tuple[str, ...], float]
"""Values of a gauge's own labels, and the value."""


@dataclass(frozen=True)
class Gauge:
    """One gauge of a profile; `read` yields nothing where the status does not tell."""

    name: str
    help: str
    read: Callable[[ServingProfile], Iterable[Reading]]
    labels: tuple[str, ...] = ()


def one(value: float | None, *labels: str) -> Iterator[Reading]:
    """The value with these labels, where there is one."""
    if value is not None:
        yield labels, float(value)


def _of_replicas(value: Callable[[ReplicaStatus], float | None]) -> Callable[[ServingProfile], Iterator[Reading]]:
    def read(profile: ServingProfile) -> Iterator[Reading]:
        for replica in profile.status.replicas:
            yield from one(value(replica), replica.pod, replica.node, replica.gpu_product)

    return read


def _outliers(profile: ServingProfile) -> Iterator[Reading]:
    for replica in profile.status.replicas:
        if replica.outlier:
            yield (replica.pod, replica.node, replica.gpu_product, replica.outlier), 1.0


def _not_observed(profile: ServingProfile) -> Iterator[Reading]:
    for replica in profile.status.replicas:
        if replica.not_observed:
            yield (replica.pod, replica.node, replica.gpu_product, replica.not_observed), 1.0


def _of_scale(field: str) -> Callable[[ServingProfile], Iterator[Reading]]:
    return lambda profile: one(getattr(profile.status.scale, field, None))


def _imbalance(profile: ServingProfile) -> Iterator[Reading]:
    scale = profile.status.scale
    yield from one(None if scale is None else scale.imbalance_percent / 100)


def _headroom(replica: ReplicaStatus) -> float | None:
    return None if replica.headroom_percent is None else replica.headroom_percent / 100


_REPLICA = ("pod", "node", "gpu_product")

REPLICA_GAUGES: tuple[Gauge, ...] = (
    Gauge(
        "kneekeeper_replica_capacity_requests_per_second",
        "Rate that this serving pod carries within the targets.",
        _of_replicas(lambda replica: replica.capacity_requests_per_second),
        _REPLICA,
    ),
    Gauge(
        "kneekeeper_replica_knee_concurrency",
        "Concurrent requests at this serving pod's knee.",
        _of_replicas(lambda replica: replica.knee_concurrency),
        _REPLICA,
    ),
    Gauge(
        "kneekeeper_replica_knee_concurrency_lower",
        "Lower end of the 90% interval of the knee that its own traffic shows.",
        _of_replicas(lambda replica: replica.knee_lower),
        _REPLICA,
    ),
    Gauge(
        "kneekeeper_replica_knee_concurrency_upper",
        "Upper end of the 90% interval of the knee that its own traffic shows.",
        _of_replicas(lambda replica: replica.knee_upper),
        _REPLICA,
    ),
    Gauge(
        "kneekeeper_replica_requests_per_second",
        "Load of this serving pod in the last five minutes of history that were read.",
        _of_replicas(lambda replica: replica.requests_per_second),
        _REPLICA,
    ),
    Gauge(
        "kneekeeper_replica_speed_ratio",
        "Speed of this serving pod over that of its peers at the same load.",
        _of_replicas(lambda replica: None if replica.speed_percent is None else replica.speed_percent / 100),
        _REPLICA,
    ),
    Gauge(
        "kneekeeper_replica_outlier",
        "1 for a serving pod that stands out from its peers; the label tells how.",
        _outliers,
        (*_REPLICA, "reason"),
    ),
    Gauge(
        "kneekeeper_replica_knee_not_observed",
        "1 for a serving pod whose own knee is not known; the label tells why.",
        _not_observed,
        (*_REPLICA, "reason"),
    ),
    Gauge(
        "kneekeeper_profile_needed_replicas",
        "Replicas for the observed peak, as the router loads them.",
        _of_scale("needed_replicas"),
    ),
    Gauge(
        "kneekeeper_profile_capacity_requests_per_second",
        "What all replicas carry together, as the router loads them.",
        _of_scale("capacity_requests_per_second"),
    ),
    Gauge(
        "kneekeeper_profile_peak_requests_per_second",
        "The busiest five minutes of the last day, all replicas together.",
        _of_scale("peak_requests_per_second"),
    ),
    Gauge(
        "kneekeeper_profile_router_imbalance_ratio",
        "Load of the replica that had most over its part, in the busiest tenth of the day.",
        _imbalance,
    ),
    Gauge(
        "kneekeeper_replica_running_requests",
        "Requests in this serving pod's batch when it was last looked at.",
        _of_replicas(lambda replica: replica.running),
        _REPLICA,
    ),
    Gauge(
        "kneekeeper_replica_waiting_requests",
        "Requests in this serving pod's queue when it was last looked at.",
        _of_replicas(lambda replica: replica.waiting),
        _REPLICA,
    ),
    Gauge(
        "kneekeeper_replica_headroom_ratio",
        "How far below its capacity this serving pod works: 0 at it, negative beyond it.",
        _of_replicas(_headroom),
        _REPLICA,
    ),
)
