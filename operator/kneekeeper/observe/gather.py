"""One tick's reads, gathered into the observation that a plan decides on.

Each gatherer reads only what the present step looks at, since active runs tick every few seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from kneekeeper.api.serving_profile import RetuneTrigger, ServingProfile, UpdateMode
from kneekeeper.api.tuning_run import RunStep, TuningRun
from kneekeeper.domain.burn_rate import WINDOWS_S
from kneekeeper.domain.diagnose import EngineReading, GpuWindow
from kneekeeper.domain.names import ANNOTATION_APPROVE
from kneekeeper.domain.observation import (
    Demand,
    GpuRoom,
    ProfileObservation,
    RunObservation,
    SideBySide,
    ViolationShare,
)
from kneekeeper.domain.plan.requests import slo_of
from kneekeeper.domain.targets.recognition import recognised_pods, recognised_workload
from kneekeeper.kube.errors import Forbidden
from kneekeeper.kube.gpus import accelerators_of_pod
from kneekeeper.kube.resources import Resource
from kneekeeper.kube.targets import UnsupportedTarget
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.engine_metrics import MetricsMissing
from kneekeeper.observe.metrics import MetricsUnreachable, ServingPods
from kneekeeper.observe.own_resources import (
    parse_profile,
    parse_run,
    read_older_profiles,
    read_profile,
    read_runs_of,
)
from kneekeeper.observe.run_reads import (
    Measured,
    Preflight,
    read_children,
    read_live,
    read_measured,
    read_obstacle,
    read_preflight,
    read_production,
    read_sources,
)
from kneekeeper.observe.serving import product_of, read_metrics, read_serving
from kneekeeper.observe.target import ReadWorkload, read_gpu_room, read_workload
from kneekeeper.observe.violations import targets_of

_log = logging.getLogger(__name__)

SHORTEST_WINDOW_S = 60.0
"""A shorter look at violations would hold a few scrapes only."""

LONGEST_WATCH_WINDOW_S = 21_600.0

_MEASURING = (RunStep.CEILING, RunStep.RAMP, RunStep.CHOOSE, RunStep.CERTIFY, RunStep.BASELINE)


async def gather_run(clients: Clients, resource: Resource, now: datetime) -> RunObservation:
    """Everything that `plan.run.decide` looks at in the run's present step.

    Done: the run itself. All other steps: profile, workload and the run's children, since any of them may end
    in cleaning up. Preflight also: serving pods, room for a clone, what forbids one, runs that go first, and the
    load of production where a replica may be borrowed. The measuring steps also: the stage, the clone's own
    metrics, what is in the way of a clone or an agent that is missing, and the load of production while a replica
    is borrowed; a run that is being deleted asks neither engine nor agent, which may be gone already.
    Raises UnreadableResource and KubeErrors: the tick is then abandoned.
    """
    run = parse_run(resource)
    namespace, deleting = run.metadata["namespace"], "deletionTimestamp" in run.metadata
    if run.status.step == RunStep.DONE:
        return RunObservation(now=now, run=run, profile=None, workload=None, deleting=deleting)
    profile = await read_profile(clients.kube, namespace, run.spec.profile_name)
    workload = await _workload_of(clients, run, profile)
    preflight, measured, production, obstacle, live = Preflight(), Measured(), None, None, None
    children = await read_children(clients.kube, run)
    if run.status.step == RunStep.PREFLIGHT and profile is not None and workload is not None:
        preflight = await read_preflight(clients, resource, run, profile, workload)
        production, obstacle = preflight.production, preflight.obstacle
    elif profile is not None and workload is not None:
        production = await read_production(clients, run, profile, workload)
        if run.status.step in _MEASURING and run.status.clone is not None and children.miss_one:
            obstacle = await read_obstacle(clients.kube, run, profile, workload)
    if run.status.step in _MEASURING and not deleting:
        measured = await read_measured(clients, run, children)
        live = await read_live(clients, run, children)
    sources = await read_sources(clients, run, children) if run.status.step == RunStep.SOURCES else None
    plan = run.status.plan
    return RunObservation(
        now=now,
        run=run,
        profile=profile,
        workload=workload.view if workload is not None else None,
        deleting=deleting,
        clone=children.clone,
        clone_starts=children.clone_starts,
        agent=children.agent,
        helpers=children.helpers,
        stage=measured.stage,
        clone_metrics=measured.clone_metrics,
        live=live,
        sources=sources,
        draft_acceptance=preflight.draft_acceptance,
        agent_exists=children.agent_exists,
        gpu_product=plan.gpu_product if plan is not None else preflight.gpu_product,
        image_digest=plan.image_digest if plan is not None else preflight.image_digest,
        gpu_room=preflight.gpu_room,
        obstacle=obstacle,
        production=production,
        other_active_runs=preflight.runs_ahead,
    )


async def _workload_of(clients: Clients, run: TuningRun, profile: ServingProfile | None) -> ReadWorkload | None:
    """As the plan names it, else the profile: a borrowed replica goes back also when the profile is gone."""
    known = [profile.spec] if profile is not None else []
    if run.status.plan is not None:
        known.insert(0, run.status.plan.profile_spec)
    if not known:
        return None
    try:
        return await read_workload(clients.kube, run.metadata["namespace"], known[0].target_ref)
    except UnsupportedTarget:
        return None  # the profile is not accepted for that reason, which says it better


async def gather_profile(clients: Clients, resource: Resource, now: datetime) -> ProfileObservation:
    """Everything that `plan.profile.decide` looks at.

    Always: the profile, its runs, older profiles of the same workload, the workload. Serving pods, their
    metrics and the share of violations unless a run is measuring without a rollout: nothing is decided from
    them then, and a run ticks often.
    Raises UnreadableResource and KubeErrors: the tick is then abandoned.
    """
    profile = parse_profile(resource)
    namespace = profile.metadata["namespace"]
    runs = await read_runs_of(clients.kube, namespace, profile.metadata["name"])
    workload, problem = None, ""
    try:
        workload = await read_workload(clients.kube, namespace, profile.spec.target_ref)
    except (UnsupportedTarget, Forbidden) as error:
        problem = str(error)
    if workload is not None:
        workload = replace(workload, view=recognised_workload(workload.view, profile.status))
    observation = ProfileObservation(
        now=now,
        profile=profile,
        workload=workload.view if workload is not None else None,
        workload_problem=problem,
        deleting="deletionTimestamp" in profile.metadata,
        runs=runs,
        older_profiles_on_target=await read_older_profiles(clients.kube, resource, profile.spec.target_ref),
    )
    return await _with_serving_pods(clients, observation, workload)


async def _with_serving_pods(
    clients: Clients, seen: ProfileObservation, workload: ReadWorkload | None
) -> ProfileObservation:
    runs = any(run.status.step not in (RunStep.PREFLIGHT, RunStep.DONE) for run in seen.runs)
    if workload is None or seen.deleting or (runs and seen.profile.status.rollout is None):
        return seen
    serving = await read_serving(clients, seen.profile, workload)
    if serving is None:
        return seen
    serving = replace(serving, pods=recognised_pods(serving.pods, workload.view, seen.profile.status))
    return replace(
        seen,
        pods=serving.pods,
        pod_metrics=await read_metrics(clients, seen.profile, serving),
        engine_readings=await _read_engine_readings(clients, seen, serving),
        gpu_windows=await _read_gpu_windows(clients, seen, serving),
        violations=await _read_violations(clients, seen, serving),
        side_by_side=await _read_side_by_side(clients, seen, serving),
        violations_over=await _read_burn_windows(clients, seen, serving),
        demand=await _read_demand(clients, seen, serving),
        gpu_room=await _read_surge_room(clients, seen, workload, serving),
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
    if not targets_of(slo):
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
    if RetuneTrigger.SLO_BREACH not in spec.retune.on or seen.profile.status.rollout is not None or not targets_of(slo):
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
    if rollout is None or not targets_of(slo):
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


async def _read_surge_room(
    clients: Clients, seen: ProfileObservation, workload: ReadWorkload, serving: ServingPods
) -> GpuRoom | None:
    """Room for one more serving pod, where a rollout that needs it may be due."""
    spec, status = seen.profile.spec, seen.profile.status
    recommendation, engine = status.recommendation, status.engine
    if recommendation is None or engine is None or status.rollout is not None or workload.view.max_unavailable != 0:
        return None
    approved = ANNOTATION_APPROVE in (seen.profile.metadata.get("annotations") or {})
    present = (engine.max_num_seqs, engine.max_num_batched_tokens)
    wanted = (recommendation.setting.max_num_seqs, recommendation.setting.max_num_batched_tokens)
    needed = accelerators_of_pod(workload.view.pod_template["spec"])
    if present == wanted or not needed or (spec.update_policy.mode != UpdateMode.APPLY and not approved):
        return None
    return await read_gpu_room(clients.kube, product_of(serving.pods, seen.profile), needed)
