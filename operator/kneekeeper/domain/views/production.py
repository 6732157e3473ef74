"""What production's metrics tell by themselves: each replica, all of them together, and the traffic."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.observed import HourOfTraffic, ObservedWorkload, RankStatus, ScaleStatus
from kneekeeper.api.profile_status import ReplicaStatus
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.workload import ArrivalProcess, ArrivalSpec, TokenLengths
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.plan.requests import lengths_of
from kneekeeper.domain.views.fleet import Knee
from kneekeeper.domain.views.units import four_digits, iso, rounded


@dataclass(frozen=True)
class RankView:
    """One data-parallel rank of a replica, in concurrent requests of that rank."""

    rank: str
    knee_concurrency: float | None
    reached_concurrency: float


@dataclass(frozen=True)
class ReplicaView:
    """One serving pod: where it works now, and where its knee is, in concurrent requests. Rates in requests/s."""

    pod: str
    node: str
    gpu_product: str
    knee_concurrency: float | None
    concurrency: int | None
    """Running and waiting together."""
    running: int | None
    waiting: int | None
    capacity_requests_per_second: float | None
    headroom_percent: int | None
    outlier: str
    """How it differs from its peers, in one word; else empty."""
    message: str
    """Of its knee, and why it stands out."""
    knee_source: str
    """Production: its own, from its metrics. Run: of the last run. Empty where there is none."""
    knee_interval: Knee | None
    """Its own knee with the 90% interval; None where it was not observed."""
    knee_at_least: float | None
    """Where its own was not observed: it lies above, as far as the traffic tells."""
    not_observed: str
    """Why its own is not known, in one word; else empty."""
    requests_per_second: float | None
    speed_percent: int | None
    """Its speed over its peers' at the same load."""
    ranks: tuple[RankView, ...]


@dataclass(frozen=True)
class ScaleView:
    """All replicas together, in requests/s."""

    replicas: int
    needed_replicas: int
    """For the observed peak, as the router loads them."""
    peak_requests_per_second: float
    capacity_requests_per_second: float
    """Their capacities over the router's imbalance."""
    imbalance_percent: int
    """Load of the replica that had most over its part; 100 is even."""
    weakest_gpu_product: str
    """On unlike hardware: what limits all; else empty."""
    lost_percent: int | None
    """Capacity lost where one set of arguments fits the weakest."""
    message: str


@dataclass(frozen=True)
class LengthsView:
    """Tokens of prompts or of answers. The 99th percentile lies between two bounds of a histogram."""

    mean_tokens: float
    p99_lower_tokens: int
    p99_upper_tokens: int


@dataclass(frozen=True)
class HourView:
    """An hour of the day, in UTC, averaged over the days that were seen."""

    hour: int
    requests_per_second: float
    prompt_tokens_mean: float | None
    output_tokens_mean: float | None
    prefix_cache_hit_percent: int | None


@dataclass(frozen=True)
class TrafficView:
    """The learned workload. Rates are of all replicas together, in requests/s."""

    measured_with: bool
    """Whether runs are measured with it: the profile declares no workload of its own."""
    confidence: str
    requests: int
    """It was learned from so many."""
    seen_hours: float
    learned_at: str | None
    """RFC 3339: how old it is."""
    prompt: LengthsView | None
    output: LengthsView | None
    arrivals: str
    prefix_cache_hit_percent: int
    requests_per_second: float
    peak_requests_per_second: float
    """The busiest hour."""
    concurrency: float | None
    hours: tuple[HourView, ...]
    drift: str
    """What moved most since the setting in use was certified; empty where nothing did."""
    drift_since: str | None


@dataclass(frozen=True)
class ProductionView:
    """All of it; `scale` and `traffic` are None before anything was learned of them."""

    replicas: tuple[ReplicaView, ...]
    scale: ScaleView | None
    traffic: TrafficView | None


def production_view(profile: ServingProfile) -> ProductionView:
    """As the profile's status has it."""
    status = profile.status
    return ProductionView(
        replicas=tuple(replica_view(each) for each in status.replicas),
        scale=scale_view(status.scale) if status.scale is not None else None,
        traffic=traffic_view(profile),
    )


def replica_view(replica: ReplicaStatus) -> ReplicaView:
    """One replica as its profile's status has it."""
    known = replica.running is not None and replica.waiting is not None
    return ReplicaView(
        pod=replica.pod,
        node=replica.node,
        gpu_product=replica.gpu_product,
        knee_concurrency=rounded(replica.knee_concurrency),
        concurrency=(replica.running or 0) + (replica.waiting or 0) if known else None,
        running=replica.running,
        waiting=replica.waiting,
        capacity_requests_per_second=rounded(replica.capacity_requests_per_second),
        headroom_percent=replica.headroom_percent,
        outlier=replica.outlier,
        message=replica.message,
        knee_source=replica.knee_source.value if replica.knee_source is not None else "",
        knee_interval=_own_knee(replica),
        knee_at_least=rounded(replica.knee_at_least),
        not_observed=replica.not_observed,
        requests_per_second=rounded(replica.requests_per_second),
        speed_percent=replica.speed_percent,
        ranks=tuple(_rank(each) for each in replica.ranks),
    )


def _own_knee(replica: ReplicaStatus) -> Knee | None:
    knee, lower, upper = replica.knee_concurrency, replica.knee_lower, replica.knee_upper
    if knee is None or lower is None or upper is None:
        return None
    return Knee(four_digits(knee), four_digits(lower), four_digits(upper))


def _rank(rank: RankStatus) -> RankView:
    return RankView(rank.rank, rounded(rank.knee_concurrency), four_digits(rank.reached))


def scale_view(given: ScaleStatus) -> ScaleView:
    """All replicas as their profile's status has them."""
    return ScaleView(
        replicas=given.replicas,
        needed_replicas=given.needed_replicas,
        peak_requests_per_second=four_digits(given.peak_requests_per_second),
        capacity_requests_per_second=four_digits(given.capacity_requests_per_second),
        imbalance_percent=given.imbalance_percent,
        weakest_gpu_product=given.weakest_gpu_product,
        lost_percent=given.lost_percent,
        message=given.message,
    )


def traffic_view(profile: ServingProfile) -> TrafficView | None:
    """What was learned of the profile's traffic; None before anything was."""
    given = profile.status.observed_workload
    if given is None:
        return None
    workload, drift = given.workload, profile.status.traffic_drift
    return TrafficView(
        measured_with=profile.spec.workload is None,
        confidence=given.confidence.value,
        requests=given.requests,
        seen_hours=four_digits(given.seen / 3600),
        learned_at=iso(given.until),
        prompt=_lengths(workload.prompt_tokens, given.prompt_p99_lower, given.prompt_p99_upper),
        output=_lengths(workload.output_tokens, given.output_p99_lower, given.output_p99_upper),
        arrivals=_arrivals(workload.arrivals),
        prefix_cache_hit_percent=workload.prefix_cache_hit_percent,
        requests_per_second=four_digits(given.requests_per_second),
        peak_requests_per_second=four_digits(given.peak_requests_per_second),
        concurrency=rounded(given.concurrency),
        hours=_hours(given),
        drift=drift.message if drift is not None else "",
        drift_since=iso(drift.since) if drift is not None else None,
    )


def _lengths(tokens: TokenLengths | None, lower: int, upper: int) -> LengthsView | None:
    return None if tokens is None else LengthsView(four_digits(mean_tokens(lengths_of(tokens, None))), lower, upper)


def _arrivals(arrivals: ArrivalSpec) -> str:
    """`Poisson`, or `Gamma 0.4`: its shape, below 1 in bursts."""
    if arrivals.process is ArrivalProcess.GAMMA and arrivals.burstiness_percent is not None:
        return f"Gamma {arrivals.burstiness_percent / 100:g}"
    return arrivals.process.value


def _hours(given: ObservedWorkload) -> tuple[HourView, ...]:
    def view(hour: HourOfTraffic) -> HourView:
        return HourView(
            hour=hour.hour,
            requests_per_second=four_digits(hour.requests_per_second),
            prompt_tokens_mean=rounded(hour.prompt_tokens_mean),
            output_tokens_mean=rounded(hour.output_tokens_mean),
            prefix_cache_hit_percent=hour.prefix_cache_hit_percent,
        )

    return tuple(view(each) for each in sorted(given.hours, key=lambda hour: hour.hour))
