"""What a profile's source of metrics tells of its serving pods; what it does not tell is None, never zero."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from kneekeeper.api.serving_profile import RetuneTrigger
from kneekeeper.domain.burn_rate import WINDOWS_S
from kneekeeper.domain.diagnose import EngineReading, GpuWindow
from kneekeeper.domain.observation import Demand, ProductionHistory, ProfileObservation, SideBySide, ViolationShare
from kneekeeper.domain.plan.probe_traffic import history_holds_probe
from kneekeeper.domain.plan.requests import slo_of
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.engine_metrics import MetricsMissing
from kneekeeper.observe.metrics import MetricsUnreachable, ServingPods
from kneekeeper.observe.serving import read_metrics
from kneekeeper.observe.violations import is_judged

_log = logging.getLogger(__name__)

SHORTEST_WINDOW_S = 60.0
"""A shorter look at violations would hold a few scrapes only."""

LONGEST_WATCH_WINDOW_S = 21_600.0

HISTORY_EVERY_S = 1800.0


async def with_metrics(clients: Clients, seen: ProfileObservation, serving: ServingPods) -> ProfileObservation:
    """The same with all that the profile's source of metrics tells of these pods; what it does not tell is None."""
    history, was_read = await _read_history(clients, seen, serving)
    return replace(
        seen,
        pods=serving.pods,
        history=history,
        history_read=was_read,
        pod_metrics=await read_metrics(clients, seen.profile, serving),
        engine_readings=await _read_engine_readings(clients, seen, serving),
        gpu_windows=await _read_gpu_windows(clients, seen, serving),
        violations=await _read_violations(clients, seen, serving),
        side_by_side=await _read_side_by_side(clients, seen, serving),
        violations_over=await _read_burn_windows(clients, seen, serving),
        demand=await _read_demand(clients, seen, serving),
    )


async def _read_engine_readings(
    clients: Clients, seen: ProfileObservation, serving: ServingPods
) -> Mapping[str, tuple[EngineReading, ...]] | None:
    """What a diagnosis looks at; not while a rollout replaces the pods."""
    if seen.profile.status.rollout is not None:
        return None
    try:
        return await clients.metrics.of(seen.profile.spec.metrics).readings(serving)
    except MetricsUnreachable as error:
        _log.info("the engines of %s cannot be diagnosed: %s", seen.profile.metadata["name"], error)
        return None


async def _read_history(
    clients: Clients, seen: ProfileObservation, serving: ServingPods
) -> tuple[ProductionHistory | None, bool]:
    """The history, and whether the source told what it has; what it told before stands until it answers again.

    It is dear and changes slowly, and while pods are replaced it is of those that go.
    """
    status = seen.profile.status
    read_at = status.history_read_at
    fresh = read_at is not None and (seen.now - read_at).total_seconds() < HISTORY_EVERY_S
    if status.rollout is not None or fresh or history_holds_probe(seen):
        return None, False
    try:
        return await clients.metrics.of(seen.profile.spec.metrics).history(serving), True
    except MetricsUnreachable as error:
        _log.info("the history of %s is not known: %s", seen.profile.metadata["name"], error)
        return None, False


async def _read_gpu_windows(
    clients: Clients, seen: ProfileObservation, serving: ServingPods
) -> Mapping[str, GpuWindow] | None:
    if seen.profile.status.rollout is not None:
        return None
    try:
        return await clients.metrics.of(seen.profile.spec.metrics).gpu_windows(serving)
    except MetricsUnreachable as error:
        _log.info("GPU use of %s is not known: %s", seen.profile.metadata["name"], error)
        return None


async def _read_violations(clients: Clients, seen: ProfileObservation, serving: ServingPods) -> ViolationShare | None:
    """Over the time for which a rollout is verified; while one is, since it took effect on every pod."""
    spec, status = seen.profile.spec, seen.profile.status
    slo = slo_of(spec)
    if not is_judged(slo):
        return None
    window_s, rollout = spec.update_policy.verify_for, status.rollout or status.watched
    if rollout is not None and rollout.verify_from is not None:
        # What is still watched after verification has a longer look.
        longest_s = window_s if status.rollout is not None else LONGEST_WATCH_WINDOW_S
        window_s = min(longest_s, (seen.now - rollout.verify_from).total_seconds())
    try:
        source = clients.metrics.of(spec.metrics)
        return await source.violation_share(serving, slo, max(SHORTEST_WINDOW_S, window_s))
    except (MetricsMissing, MetricsUnreachable) as error:
        _log.info("violations of %s are not known: %s", seen.profile.metadata["name"], error)
        return None


async def _read_burn_windows(
    clients: Clients, seen: ProfileObservation, serving: ServingPods
) -> dict[float, ViolationShare] | None:
    """Where SLOBreach may start a run: what each window that decides on it saw, as far as it is known."""
    spec = seen.profile.spec
    slo = slo_of(spec)
    if RetuneTrigger.SLO_BREACH not in spec.retune.on or seen.profile.status.rollout is not None or not is_judged(slo):
        return None
    source, found = clients.metrics.of(spec.metrics), {}
    try:
        for window_s in WINDOWS_S:
            share = await source.violation_share(serving, slo, window_s)
            if share is not None:
                found[window_s] = share
    except (MetricsMissing, MetricsUnreachable) as error:
        _log.info("burn rates of %s are not known: %s", seen.profile.metadata["name"], error)
    return found


async def _read_side_by_side(clients: Clients, seen: ProfileObservation, serving: ServingPods) -> SideBySide | None:
    """While pods with old and with new words serve at the same time: what each kind missed since the write."""
    rollout, slo = seen.profile.status.rollout, slo_of(seen.profile.spec)
    if rollout is None or not is_judged(slo):
        return None
    ready = [pod for pod in serving.pods if pod.ready and not pod.deleting]
    old = replace(serving, pods=tuple(pod for pod in ready if pod.words == rollout.before))
    new = replace(serving, pods=tuple(pod for pod in ready if pod.words == rollout.after))
    if not old.pods or not new.pods:
        return None
    window_s = max(SHORTEST_WINDOW_S, (seen.now - rollout.started_at).total_seconds())
    source = clients.metrics.of(seen.profile.spec.metrics)
    try:
        of_old = await source.violation_share(old, slo, window_s)
        of_new = await source.violation_share(new, slo, window_s)
    except (MetricsMissing, MetricsUnreachable) as error:
        _log.info("old and new pods of %s cannot be compared: %s", seen.profile.metadata["name"], error)
        return None
    if of_old is None or of_new is None:
        return None
    return SideBySide(of_old, len(old.pods), of_new, len(new.pods))


async def _read_demand(clients: Clients, seen: ProfileObservation, serving: ServingPods) -> Demand | None:
    """Where there is a promise to hold it against."""
    if seen.profile.status.recommendation is None or seen.profile.status.rollout is not None:
        return None
    try:
        return await clients.metrics.of(seen.profile.spec.metrics).demand(serving)
    except MetricsUnreachable as error:
        _log.info("the demand of %s is not known: %s", seen.profile.metadata["name"], error)
        return None
