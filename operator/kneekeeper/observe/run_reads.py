"""The parts of a run's observation."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.serving_profile import ProbeTarget, ServingProfile
from kneekeeper.api.sources import SourcesReport
from kneekeeper.api.stage import StageState
from kneekeeper.api.tuning_run import RunStep, TuningRun
from kneekeeper.domain.engine_counters import draft_acceptance
from kneekeeper.domain.names import AGENT_PORT, ROLE_AGENT, ROLE_CLONE, agent_name, clone_name, stage_id
from kneekeeper.domain.observation import (
    EngineMetrics,
    GpuRoom,
    Obstacle,
    ObstacleReason,
    PodPhase,
    PodView,
    ProductionLoad,
    StageView,
    Unreachable,
)
from kneekeeper.domain.plan.live_scope import is_tuned_live
from kneekeeper.domain.target import Target, resolve
from kneekeeper.kube.children import AGENT_CONTAINER, child_selector
from kneekeeper.kube.client import Kube
from kneekeeper.kube.clone_obstacles import read_clone_obstacle
from kneekeeper.kube.config_maps import ConfigMapUnusable, read_config_map_key
from kneekeeper.kube.disruption_budgets import read_exhausted_budgets
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.gpus import accelerators_of_pod
from kneekeeper.kube.resources import JOBS, PODS, SECRETS, Kind, Resource
from kneekeeper.kube.secrets import SecretUnusable, read_agent_token, read_secret_value
from kneekeeper.livetune.messages import Report as LiveReport
from kneekeeper.load.client import AgentError, StageUnknown
from kneekeeper.load.live_limits import LiveLimitsError
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.engine_http import EngineUnreachable
from kneekeeper.observe.engine_metrics import MetricsMissing, engine_metrics, scrape
from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.own_resources import read_runs_ahead
from kneekeeper.observe.pods import parse_pod, with_log_tail
from kneekeeper.observe.serving import digest_in, load_of, product_of, read_metrics, read_serving
from kneekeeper.observe.target import ReadWorkload

ANNOTATION_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Children:
    """What the run has made and is still there."""

    clone: PodView | None
    clone_starts: tuple[int, ...]
    agent: PodView | None
    helpers: tuple[PodView, ...]
    agent_exists: bool

    @property
    def miss_one(self) -> bool:
        """Whether the clone's or the agent's pod is not there: what was decided may not have been possible."""
        return self.clone is None or self.agent is None


@dataclass(frozen=True)
class Preflight:
    """What is looked at before anything is started."""

    gpu_product: str = ""
    image_digest: str = ""
    gpu_room: GpuRoom | None = None
    production: ProductionLoad | Unreachable | None = None
    obstacle: Obstacle | None = None
    runs_ahead: tuple[str, ...] = ()
    draft_acceptance: float | None = None


@dataclass(frozen=True)
class Measured:
    """What the engine under test and the load agent say."""

    stage: StageView | Unreachable | None = None
    clone_metrics: EngineMetrics | Unreachable | None = None


async def read_children(kube: Kube, run: TuningRun) -> Children:
    """Clones by their start, the agent's pod, and whether the agent's Job or Secret exists."""
    namespace, name = run.metadata["namespace"], run.metadata["name"]
    clones = await kube.list(PODS, namespace, labels=child_selector(name, ROLE_CLONE))
    agents = await kube.list(PODS, namespace, labels=child_selector(name, ROLE_AGENT))
    starts = {start_of(pod["metadata"]["name"], name): pod for pod in clones}
    state, plan = run.status.clone, run.status.plan
    present = starts.get(state.start) if state is not None else None
    clone = None
    if present is not None and plan is not None:
        clone = await with_log_tail(kube, namespace, present, plan.container)
    live = live_agents(agents)
    child = agent_name(name)
    agent_exists = await _exists(kube, JOBS, namespace, child) or await _exists(kube, SECRETS, namespace, child)
    return Children(
        clone=clone,
        clone_starts=tuple(sorted(start for start in starts if start is not None)),
        agent=live.pop(0, None),
        helpers=tuple(live[index] for index in sorted(live)),
        agent_exists=agent_exists or bool(agents),
    )


async def read_serving_pod(
    clients: Clients, run: TuningRun, profile: ServingProfile, workload: ReadWorkload
) -> PodView | None:
    """The serving pod that the run measures; while it looks for one, the first that is ready, else the first."""
    serving = await read_serving(clients, profile, workload)
    if serving is None:
        return None
    state = run.status.clone
    if state is not None and state.serving_pod:
        return next((pod for pod in serving.pods if pod.uid == state.serving_pod), None)
    ready = [pod for pod in serving.pods if pod.ready and not pod.deleting]
    return next(iter([*ready, *serving.pods]), None)


def start_of(pod: str, run: str) -> int | None:
    """Which engine start a clone's name tells; None when it is no clone of this run."""
    found = re.search(r"(\d+)$", pod)
    return int(found[1]) if found and pod == clone_name(run, int(found[1])) else None


def live_agents(pods: list[Resource]) -> dict[int, PodView]:
    """The agents' pods that work or will, by their number in the Job, which may leave ended ones behind."""
    live: dict[int, PodView] = {}
    for pod in pods:
        view = parse_pod(pod, AGENT_CONTAINER)
        if view.deleting or view.phase not in (PodPhase.PENDING, PodPhase.RUNNING):
            continue
        number = int((pod["metadata"].get("annotations") or {}).get(ANNOTATION_INDEX, 0))
        live[number] = max((view, live.get(number, view)), key=lambda view: (view.ready, view.created_at, view.name))
    return live


async def _exists(kube: Kube, kind: Kind, namespace: str, name: str) -> bool:
    try:
        await kube.get(kind, namespace, name)
    except NotFound:
        return False
    return True


async def read_preflight(
    clients: Clients, resource: Resource, run: TuningRun, profile: ServingProfile, workload: ReadWorkload
) -> Preflight:
    """Serving pods' GPU product, room for one more pod, the load where a replica may be borrowed, what forbids a
    clone, other runs. A run that only waits for room looks for obstacles once, and again when it may start."""
    ahead = await read_runs_ahead(clients.kube, resource, profile.spec.target_ref)
    serving = await read_serving(clients, profile, workload)
    if serving is None:
        return Preflight(runs_ahead=ahead)
    product = product_of(serving.pods, profile)
    needed = accelerators_of_pod(workload.view.pod_template["spec"])
    room = await clients.rooms.read(product, needed) if needed else None
    production = None
    may_borrow = ProbeTarget.BORROW_REPLICA in profile.spec.probe.allow
    if may_borrow:
        production = await _read_load(clients, profile, workload, serving)
    fits = room is None or room.largest_free_on_a_node >= sum(needed.values())
    obstacle = None
    sends = any(option is not ProbeTarget.PASSIVE for option in profile.spec.probe.allow)
    if sends and not ahead and (fits or may_borrow or not run.status.waiting_for):
        obstacle = await read_obstacle(clients.kube, run, profile, workload)
    digest = digest_in(serving.pods, profile, workload)
    acceptance = await _read_draft_acceptance(clients, profile, workload, serving)
    return Preflight(product, digest, room, production, obstacle, ahead, acceptance)


async def _read_draft_acceptance(
    clients: Clients, profile: ServingProfile, workload: ReadWorkload, serving: ServingPods
) -> float | None:
    """Of the serving pods' speculative decoding, where they have any."""
    target = resolve(workload.view, profile.spec.target_ref)
    if not isinstance(target, Target) or target.arguments.speculative is None:
        return None
    metrics = await read_metrics(clients, profile, serving)
    return draft_acceptance([each for each in metrics.values() if isinstance(each, EngineMetrics)])


async def read_obstacle(kube: Kube, run: TuningRun, profile: ServingProfile, workload: ReadWorkload) -> Obstacle | None:
    """The first reason why the load agent cannot be made, or the clone may not be."""
    endpoint, namespace = profile.spec.endpoint, run.metadata["namespace"]
    try:
        if endpoint.api_key_secret_ref is not None:
            await read_secret_value(kube, namespace, endpoint.api_key_secret_ref)
        if endpoint.ca_bundle_ref is not None:
            await read_config_map_key(kube, namespace, endpoint.ca_bundle_ref)
    except SecretUnusable as error:
        return Obstacle(ObstacleReason.API_KEY_UNUSABLE, f"spec.endpoint.apiKeySecretRef: {error}.")
    except ConfigMapUnusable as error:
        return Obstacle(ObstacleReason.CA_BUNDLE_UNUSABLE, f"spec.endpoint.caBundleRef: {error}.")
    return await read_clone_obstacle(kube, workload.view, run.metadata["name"], profile.spec.probe.clone.keep)


async def read_production(
    clients: Clients, run: TuningRun, profile: ServingProfile, workload: ReadWorkload
) -> ProductionLoad | Unreachable | None:
    """Read only while a replica is borrowed or about to be: it goes back when requests wait."""
    plan, borrowed = run.status.plan, run.status.borrowed
    if plan is None or plan.probe_target != ProbeTarget.BORROW_REPLICA:
        return None
    if borrowed is not None and borrowed.returned_at is not None:
        return None
    serving = await read_serving(clients, profile, workload)
    if serving is None:
        return Unreachable("no container of the workload can be read as vLLM")
    if borrowed is not None:
        return load_of(await read_metrics(clients, profile, serving))
    return await _read_load(clients, profile, workload, serving)


async def _read_load(
    clients: Clients, profile: ServingProfile, workload: ReadWorkload, serving: ServingPods
) -> ProductionLoad | Unreachable:
    """Before a replica is taken; afterwards the budget is used up by that."""
    load = load_of(await read_metrics(clients, profile, serving))
    if isinstance(load, Unreachable):
        return load
    view = workload.view
    labels = (view.pod_template.get("metadata") or {}).get("labels") or {}
    return replace(load, exhausted_budgets=await read_exhausted_budgets(clients.kube, view.namespace, labels))


async def read_measured(clients: Clients, run: TuningRun, children: Children) -> Measured:
    """The current stage while it runs, and the clone's metrics between stages: nothing else disturbs a stage."""
    plan, clone, current = run.status.plan, children.clone, run.status.current_stage
    if plan is None or clone is None:
        return Measured()
    if current is not None:
        stage = await _read_stage(clients, run, children, stage_id(current.name, clone.uid))
        ended = isinstance(stage, StageView) and stage.samples is not None
        metrics = await _read_clone_metrics(clients, clone, plan) if ended and clone.ip else None
        return Measured(stage=stage, clone_metrics=metrics)
    if not clone.ready or not clone.ip:
        return Measured()
    return Measured(clone_metrics=await _read_clone_metrics(clients, clone, plan))


async def read_live(clients: Clients, run: TuningRun, children: Children) -> LiveReport | Unreachable | None:
    """What the clone's live-tuning plugin says, where it may be needed: read in every tick then, also under a stage,
    since reading is the heartbeat without which the engine goes back to its start values."""
    plan, clone, step = run.status.plan, children.clone, run.status.step
    if plan is None or not is_tuned_live(plan) or clone is None or not clone.ip:
        return None
    if step != RunStep.BASELINE and (step != RunStep.CERTIFY or plan.live_start is None):
        return None
    token = await read_agent_token(clients.kube, run.metadata["namespace"], run.metadata["name"])
    if token is None:
        return Unreachable("the run's Secret is gone; it is made again")
    try:
        async with clients.connect_live(clone.ip, token) as live:
            return await live.read()
    except LiveLimitsError as error:
        return Unreachable(str(error))


async def read_sources(clients: Clients, run: TuningRun, children: Children) -> SourcesReport | Unreachable | None:
    """What the agent's files hold; None while there is no agent to ask."""
    agent = children.agent
    if agent is None or not agent.ready or not agent.ip:
        return None
    token = await read_agent_token(clients.kube, run.metadata["namespace"], run.metadata["name"])
    if token is None:
        return Unreachable("the load agent's Secret is gone; the agent is made again")
    try:
        async with clients.connect_agent(agent.ip, AGENT_PORT, token) as reader:
            return await reader.get_sources()
    except AgentError as error:
        return Unreachable(str(error))


async def _read_stage(
    clients: Clients, run: TuningRun, children: Children, stage: str
) -> StageView | Unreachable | None:
    agent = children.agent
    if agent is None or not agent.ready or not agent.ip:
        return None
    token = await read_agent_token(clients.kube, run.metadata["namespace"], run.metadata["name"])
    if token is None:
        return Unreachable("the load agent's Secret is gone; the agent is made again")
    try:
        async with clients.connect_agent(agent.ip, AGENT_PORT, token) as reader:
            status = await reader.get_stage(stage)
            running = status.state == StageState.RUNNING
            return StageView(status, None if running else await reader.get_samples(stage))
    except StageUnknown:
        return StageView(None, None)
    except AgentError as error:
        return Unreachable(str(error))


async def _read_clone_metrics(clients: Clients, clone: PodView, plan: RunPlan) -> EngineMetrics | Unreachable:
    try:
        return engine_metrics(await scrape(clients.http, clone.ip, plan.port, plan.scheme))
    except (EngineUnreachable, MetricsMissing) as error:
        return Unreachable(str(error))
