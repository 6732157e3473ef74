"""Each serving pod against its own knee, its peers, and the load: `status.replicas` and `status.scale`.

History is read now and then; between two reads what it told stands, and only the load of the moment changes. That is
told anew where it moved notably: no status is written at each look for numbers that the engines tell better themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from kneekeeper.api.observed import KneeSource, RankStatus, ScaleStatus
from kneekeeper.api.profile_status import ReplicaStatus, ServingProfileStatus
from kneekeeper.api.tuning_run import RunStep
from kneekeeper.domain.observation import EngineMetrics, PodView, ProfileObservation
from kneekeeper.domain.passive import EngineHistory, KneePrior, NotObserved, PassiveKnee, StepCurve, passive_knee
from kneekeeper.domain.passive.one_setting import KnownReplica, OneSetting, one_setting
from kneekeeper.domain.passive.peers import Comparison, Peer, compare
from kneekeeper.domain.passive.router import fleet_of
from kneekeeper.domain.plan.changes import changed
from kneekeeper.domain.plan.throughput_runs import asks_for_throughput

MAX_REPLICAS = 512
LEAST_HEADROOM_PERCENT = -1_000_000
"""What a profile's status holds."""

LOAD_STEP = 0.1
"""Of the knee: what the load moves by until it is told anew."""

_MOST_RANKS = 64
_KNEE_PER_ALPHA_OVER_BETA = 4
_NO_HISTORY = "Metrics are read from the pod itself: name a Prometheus server in spec.metrics.prometheusRef."
_NOT_YET = "Prometheus has no history of it yet; it is read anew every half hour."


def with_replicas(obs: ProfileObservation, status: ServingProfileStatus) -> ServingProfileStatus:
    """Replicas, and all of them together, as seen now."""
    if obs.pods is None:
        return status
    before = {replica.pod: replica for replica in status.replicas}
    pods = obs.pods[:MAX_REPLICAS]
    if not obs.history_read:
        known = [before.get(pod.name, ReplicaStatus(pod=pod.name)) for pod in pods]
        if _promise_ended(obs, status):
            known = [changed(each, capacity_requests_per_second=None) for each in known]
        return changed(
            status, replicas=[_now(obs, status, pod, each, last=each) for pod, each in zip(pods, known, strict=True)]
        )
    engines = _by_pod(obs)
    answers = {pod: _answers(engines[pod], _prior(obs, status, len(engines[pod]))) for pod in engines}
    compared = compare([Peer(pod.name, pod.gpu_product, engines.get(pod.name, ())) for pod in pods])
    unknown = _NO_HISTORY if obs.history is None else _NOT_YET
    told = [_told(pod, answers.get(pod.name, ()), each, unknown) for pod, each in zip(pods, compared, strict=True)]
    last = before if obs.history is None else {}
    replicas = [_now(obs, status, pod, each, last=last.get(pod.name)) for pod, each in zip(pods, told, strict=True)]
    if obs.history is None:  # there is none to be had, and nothing that is written anyway
        return changed(status, replicas=replicas)
    return changed(
        status,
        replicas=replicas,
        history_read_at=obs.now,
        scale=_scale(obs, replicas, _one_setting(replicas, answers)) or status.scale,
    )


def _promise_ended(obs: ProfileObservation, status: ServingProfileStatus) -> bool:
    """Whether the promise that the capacities were stored for answers no more what is asked: other targets, another
    engine."""
    was = obs.profile.status.recommendation
    return was is not None and was.is_certified and status.recommendation is None


def _by_pod(obs: ProfileObservation) -> dict[str, tuple[EngineHistory, ...]]:
    found: dict[str, list[EngineHistory]] = {}
    for engine in obs.history.engines if obs.history is not None else ():
        found.setdefault(engine.pod, []).append(engine)
    return {pod: tuple(engines[:_MOST_RANKS]) for pod, engines in found.items()}


def _prior(obs: ProfileObservation, status: ServingProfileStatus, ranks: int) -> KneePrior | None:
    """Of the newest run of the present engine that has a fit, for one rank of a replica."""
    fingerprint = status.engine.fingerprint if status.engine is not None else None
    for run in reversed(obs.runs):
        fit, plan = run.status.fit, run.status.plan
        if run.status.step != RunStep.DONE or fit is None or plan is None or plan.fingerprint != fingerprint:
            continue
        if fit.alpha and fit.beta:
            return KneePrior(_KNEE_PER_ALPHA_OVER_BETA * fit.alpha / fit.beta / ranks)
    return None


Answers = tuple[tuple[EngineHistory, PassiveKnee], ...]
"""One for each rank of a replica."""


def _answers(engines: tuple[EngineHistory, ...], prior: KneePrior | None) -> Answers:
    return tuple((engine, passive_knee(engine, prior)) for engine in engines)


def _told(pod: PodView, ranks: Answers, compared: Comparison, unknown_because: str) -> ReplicaStatus:
    """What history tells of one replica."""
    if not ranks:
        message = " ".join(filter(None, (unknown_because, compared.message)))
        return ReplicaStatus(
            pod=pod.name, not_observed=NotObserved.NO_HISTORY, outlier=compared.outlier or "", message=message
        )
    unknown = next((answer for _, answer in ranks if answer.knee is None), None)
    # A replica's requests are spread evenly over its ranks, so the weakest of them sets how many it carries.
    weakest = min((a for _, a in ranks), key=lambda a: a.at_least if unknown is not None else _estimate(a))
    knee = weakest.knee if unknown is None else None
    many = len(ranks)
    return ReplicaStatus(
        pod=pod.name,
        knee_concurrency=many * knee.estimate if knee is not None else None,
        knee_lower=many * knee.lower if knee is not None else None,
        knee_upper=many * knee.upper if knee is not None else None,
        knee_source=KneeSource.PRODUCTION if knee is not None else None,
        knee_at_least=many * weakest.at_least if knee is None else None,
        not_observed=(unknown.not_observed or "") if unknown is not None else "",
        outlier=compared.outlier or "",
        message=" ".join(filter(None, ((unknown or weakest).message, compared.message)))[:512],
        ranks=[
            RankStatus(rank=e.rank[:16], knee_concurrency=a.knee.estimate if a.knee else None, reached=a.seen)
            for e, a in (ranks if many > 1 else ())
        ],
        speed_percent=round(100 / compared.slowness) if compared.slowness is not None else None,
        capacity_requests_per_second=_capacity_at_the_knee(ranks),
        requests_per_second=_load(ranks),
    )


def _estimate(answer: PassiveKnee) -> float:
    return answer.knee.estimate if answer.knee is not None else answer.at_least


def _capacity_at_the_knee(ranks: Answers) -> float | None:
    """Requests/s of all ranks at the weakest one's knee; None where one is not known."""
    known = [(e, a.curve, a.knee.estimate) for e, a in ranks if a.knee is not None and a.curve is not None]
    if len(known) < len(ranks):
        return None
    weakest = min(knee for _, _, knee in known)
    return sum(curve.tokens_per_s(weakest) / engine.tokens_per_request for engine, curve, _ in known)


def _load(ranks: Answers) -> float | None:
    """Requests/s in the newest window that is known of every rank."""
    newest = [engine.newest_requests_per_s for engine, _ in ranks]
    known = [rate for rate in newest if rate is not None]
    return sum(known) if len(known) == len(newest) else None


def _now(
    obs: ProfileObservation,
    status: ServingProfileStatus,
    pod: PodView,
    told: ReplicaStatus,
    last: ReplicaStatus | None,
) -> ReplicaStatus:
    """What history told, with the pod's place and load of the moment, or of `last` where that is near enough; the
    run's knee stands in for its own."""
    own = told.knee_source == KneeSource.PRODUCTION
    knee = told.knee_concurrency if own else status.knee.concurrency if status.knee is not None else None
    capacity = told.capacity_requests_per_second
    if status.recommendation is not None and status.recommendation.is_certified:
        # The promise was proven on one machine; a slower one keeps less of it, in proportion.
        capacity = status.recommendation.promised_requests_per_second * (told.speed_percent or 100) / 100
    metrics = (obs.pod_metrics or {}).get(pod.name)
    seen = metrics if isinstance(metrics, EngineMetrics) else None
    running, waiting = (seen.running, seen.waiting) if seen is not None else (None, None)
    if seen is not None and last is not None and _is_near(seen, knee, last):
        running, waiting = last.running, last.waiting
    headroom = None
    if running is not None and waiting is not None and knee is not None and knee > 0:
        headroom = max(LEAST_HEADROOM_PERCENT, round(100 * (1 - (running + waiting) / knee)))
    return changed(
        told,
        node=pod.node,
        gpu_product=pod.gpu_product,
        knee_concurrency=knee,
        knee_source=KneeSource.PRODUCTION if own else KneeSource.RUN if knee is not None else None,
        capacity_requests_per_second=capacity,
        running=running,
        waiting=waiting,
        headroom_percent=headroom,
    )


def _is_near(seen: EngineMetrics, knee: float | None, last: ReplicaStatus) -> bool:
    """Whether the load is much as it was last told, on the same side of the knee, and requests queue where they did."""
    if last.running is None or last.waiting is None or bool(last.waiting) != bool(seen.waiting):
        return False
    before, now = last.running + last.waiting, seen.running + seen.waiting
    if knee is not None and (before > knee) != (now > knee):
        return False
    return abs(now - before) <= max(1.0, LOAD_STEP * (knee if knee is not None else max(before, now)))


def _one_setting(replicas: list[ReplicaStatus], answers: Mapping[str, Answers]) -> OneSetting | None:
    """Of the replicas whose own knee and speed are known."""
    known = []
    for replica in replicas:
        ranks = answers.get(replica.pod, ())
        curves = [answer.curve for _, answer in ranks if answer.curve is not None]
        if replica.knee_source != KneeSource.PRODUCTION or not curves or replica.knee_concurrency is None:
            continue
        # All ranks together: so many requests in each.
        curve = StepCurve(curves[0].base_s, curves[0].per_request_s / len(ranks))
        known.append(KnownReplica(replica.pod, replica.gpu_product, replica.knee_concurrency, curve))
    return one_setting(known)


def _scale(obs: ProfileObservation, replicas: list[ReplicaStatus], one: OneSetting | None) -> ScaleStatus | None:
    capacities = {r.pod: r.capacity_requests_per_second for r in replicas if r.capacity_requests_per_second}
    fleet = fleet_of(obs.history.engines, capacities) if obs.history is not None else None
    # A batch keeps as many engines full as there are: its peak asks for no more of them.
    if fleet is None or asks_for_throughput(obs.profile.spec):
        return None
    return ScaleStatus(
        replicas=fleet.replicas,
        needed_replicas=fleet.needed,
        peak_requests_per_second=fleet.peak_per_s,
        capacity_requests_per_second=fleet.capacity_per_s,
        imbalance_percent=min(100_000, round(100 * fleet.imbalance)),
        weakest_gpu_product=one.weakest_product if one is not None else "",
        lost_percent=round(100 * one.lost_share) if one is not None else None,
        message=" ".join(filter(None, (fleet.advice, one.advice if one is not None else ""))),
    )
