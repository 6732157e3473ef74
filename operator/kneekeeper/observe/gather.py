"""One tick's reads, gathered into the observation that a plan decides on.

Each gatherer reads only what the present step looks at, since active runs tick every few seconds.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from kneekeeper.api.serving_profile import ServingProfile, UpdateMethod, UpdateMode
from kneekeeper.api.tuning_run import RunStep, TuningRun
from kneekeeper.domain.live_production import pods_in_force
from kneekeeper.domain.names import ANNOTATION_APPROVE, limits_name
from kneekeeper.domain.observation import GpuRoom, ProfileObservation, RunObservation
from kneekeeper.domain.plan.live_scope import allows_live_changes
from kneekeeper.domain.plan.run_in_place import is_in_place
from kneekeeper.domain.targets.recognition import recognised_pods, recognised_workload
from kneekeeper.kube.errors import Forbidden
from kneekeeper.kube.gpus import accelerators_of_pod
from kneekeeper.kube.resources import Resource
from kneekeeper.kube.targets import UnsupportedTarget
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.live_limits import read_live_limits
from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.own_resources import (
    UnreadableResource,
    parse_profile,
    parse_run,
    read_older_profiles,
    read_profile,
    read_runs_of,
)
from kneekeeper.observe.passive import read_records
from kneekeeper.observe.production import with_metrics
from kneekeeper.observe.run_reads import (
    Measured,
    Preflight,
    read_children,
    read_live,
    read_measured,
    read_obstacle,
    read_preflight,
    read_production,
    read_serving_pod,
    read_sources,
)
from kneekeeper.observe.serving import product_of, read_serving
from kneekeeper.observe.target import ReadWorkload, read_shared_config_maps, read_workload

_MEASURING = (RunStep.CEILING, RunStep.RAMP, RunStep.CHOOSE, RunStep.CERTIFY, RunStep.BASELINE)


async def gather_run(
    clients: Clients, resource: Resource, now: datetime, runs_ahead_in_fleet: int = 0
) -> RunObservation:
    """Everything that `plan.run.decide` looks at in the run's present step.

    Done: the run itself. All other steps: profile, workload and the run's children, since any of them may end
    in cleaning up. Preflight also: serving pods, room for a clone, what forbids one, runs that go first, the load of
    production where a replica may be borrowed, and its record where a run may be passive, which is read again where
    such a run chooses. The measuring steps also: the stage, the clone's own metrics, what is in the way of a clone or
    an agent that is missing, and the load of production while a replica is borrowed; in place the serving pod, which
    is then the engine under test; a run that is being deleted asks neither engine nor agent, which may be gone already.
    A run that has to wait for others of the fleet reads nothing that only a start needs.
    A profile that is not understood any more is told of as a problem, since what was borrowed has to go back.
    Raises UnreadableResource, of the run itself, and KubeErrors: the tick is then abandoned.
    """
    run = parse_run(resource)
    namespace, deleting = run.metadata["namespace"], "deletionTimestamp" in run.metadata
    if run.status.step == RunStep.DONE:
        return RunObservation(now=now, run=run, profile=None, workload=None, deleting=deleting)
    profile, profile_problem = None, ""
    try:
        profile = await read_profile(clients.kube, namespace, run.spec.profile_name)
    except UnreadableResource as error:
        profile_problem = str(error)
    workload = await _workload_of(clients, run, profile)
    preflight, measured, production, obstacle, live, records = Preflight(), Measured(), None, None, None, None
    children = await read_children(clients.kube, run)
    in_place = run.status.plan is not None and is_in_place(run.status.plan)
    if in_place and run.status.step in _MEASURING and profile is not None and workload is not None:
        children = replace(children, clone=await read_serving_pod(clients, run, profile, workload))
    if run.status.step == RunStep.PREFLIGHT:
        if profile is not None and workload is not None and not runs_ahead_in_fleet:
            preflight = await read_preflight(clients, resource, run, profile, workload)
            production, obstacle = preflight.production, preflight.obstacle
    elif profile is not None and workload is not None:
        production = await read_production(clients, run, profile, workload)
        misses = run.status.clone is not None and children.miss_one and not in_place
        if run.status.step in _MEASURING and misses:
            obstacle = await read_obstacle(clients.kube, run, profile, workload)
    if profile is not None and workload is not None and not deleting and not runs_ahead_in_fleet:
        records = await read_records(clients, run, profile, workload)
    if run.status.step in _MEASURING and not deleting:
        measured = await read_measured(clients, run, children)
        live = await read_live(clients, run, children)
    sources = await read_sources(clients, run, children) if run.status.step == RunStep.SOURCES else None
    plan = run.status.plan
    return RunObservation(
        now=now,
        run=run,
        profile=profile,
        profile_problem=profile_problem,
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
        records=records,
        draft_acceptance=preflight.draft_acceptance,
        agent_exists=children.agent_exists,
        gpu_product=plan.gpu_product if plan is not None else preflight.gpu_product,
        image_digest=plan.image_digest if plan is not None else preflight.image_digest,
        gpu_room=preflight.gpu_room,
        obstacle=obstacle,
        production=production,
        other_active_runs=preflight.runs_ahead,
        runs_ahead_in_fleet=runs_ahead_in_fleet,
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
    metrics, what their live-tuning plugins say and the share of violations unless a run is measuring without a
    rollout: nothing is decided from them then, and a run ticks often.
    Raises UnreadableResource and KubeErrors: the tick is then abandoned.
    """
    profile = parse_profile(resource)
    namespace = profile.metadata["namespace"]
    deleting = "deletionTimestamp" in profile.metadata
    runs = await read_runs_of(clients.kube, namespace, profile.metadata["name"], are_going=deleting)
    workload, problem = None, ""
    try:
        limits = [limits_name(profile.metadata["name"])] if allows_live_changes(profile.spec) else []
        workload = await read_workload(clients.kube, namespace, profile.spec.target_ref, limits)
    except (UnsupportedTarget, Forbidden) as error:
        problem = str(error)
    if workload is not None and profile.spec.update_policy.method == UpdateMethod.CONFIG_MAP:
        shared = await read_shared_config_maps(clients.kube, workload)
        workload = replace(workload, view=replace(workload.view, shared_config_maps=shared))
    if workload is not None:
        workload = replace(workload, view=recognised_workload(workload.view, profile.status))
    observation = ProfileObservation(
        now=now,
        profile=profile,
        workload=workload.view if workload is not None else None,
        workload_problem=problem,
        deleting=deleting,
        runs=runs,
        older_profiles_on_target=await read_older_profiles(clients.kube, resource, profile.spec.target_ref),
        plugin_image=clients.settings.plugin_image,
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
    live = await read_live_limits(clients, serving.pods)
    pods = pods_in_force(serving.pods, workload.view, live)
    serving = replace(serving, pods=recognised_pods(pods, workload.view, seen.profile.status))
    seen = await with_metrics(clients, seen, serving)
    return replace(seen, live=live, gpu_room=await _read_surge_room(clients, seen, workload, serving))


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
    return await clients.rooms.read(product_of(serving.pods, seen.profile), needed)
