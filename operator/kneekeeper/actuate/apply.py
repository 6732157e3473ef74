"""Carries out what a plan decided. Each action is idempotent: a tick that was cut off is simply done again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from pydantic import SecretStr

from kneekeeper.actuate.agent import build_agent_job, build_agent_secret
from kneekeeper.actuate.children import ensure, ensure_working_job, exists, remove
from kneekeeper.actuate.clone import build_clone
from kneekeeper.actuate.events import build_event, emit
from kneekeeper.actuate.limits import ensure_limits
from kneekeeper.actuate.runs import build_run
from kneekeeper.actuate.samples import build_samples, pack
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.actuate.workload import scale, write_words
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.stage import Helpers
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.domain.actions import (
    CreateRun,
    DeleteAgent,
    DeleteClone,
    DeleteRun,
    EmitEvent,
    EnsureAgent,
    EnsureClone,
    EnsureLimits,
    ProfileAction,
    RunAction,
    ScaleWorkload,
    SetLimits,
    StartStage,
    StoreSamples,
    WriteWords,
)
from kneekeeper.domain.agents import agents_of
from kneekeeper.domain.live_settings import limits_of
from kneekeeper.domain.names import AGENT_PORT, agent_name, clone_name
from kneekeeper.domain.observation import Obstacle, PodView, WorkloadView
from kneekeeper.domain.plan.requests import slos_of
from kneekeeper.kube.client import Kube
from kneekeeper.kube.clone_obstacles import read_clone_obstacle
from kneekeeper.kube.config_maps import read_config_map_key
from kneekeeper.kube.errors import KubeError, NotFound
from kneekeeper.kube.refusals import obstacle_of_refusal
from kneekeeper.kube.resources import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    SECRETS,
    SERVING_PROFILES,
    TUNING_RUNS,
)
from kneekeeper.kube.secrets import read_agent_token, read_secret_key
from kneekeeper.load.client import AgentClient, AnotherStageRuns
from kneekeeper.load.live_limits import ConnectLive, connect_live

TOKEN_BYTES = 32


@dataclass(frozen=True)
class Writers:
    """What writes go through; made once per operator process."""

    kube: Kube
    connect_agent: Callable[[str, int, SecretStr], AgentClient]
    settings: ActuateSettings
    connect_live: ConnectLive = connect_live


@dataclass(frozen=True)
class RunSubject:
    """A run as it was observed in this tick, with the status that was just stored."""

    run: TuningRun
    workload: WorkloadView | None
    agent: PodView | None


@dataclass(frozen=True)
class ProfileSubject:
    """A profile as it was observed in this tick, with the status that was just stored."""

    profile: ServingProfile


@dataclass(frozen=True)
class ActionFailure:
    """One action that could not be carried out."""

    action: RunAction | ProfileAction
    error: Exception


class ActionsFailed(Exception):
    """Some actions failed, the others were done; all are decided anew in the next tick."""

    def __init__(self, failures: Sequence[ActionFailure]) -> None:
        told = "; ".join(f"{type(f.action).__name__}: {f.error}" for f in failures)
        super().__init__(told)
        self.failures = tuple(failures)

    @property
    def obstacle(self) -> Obstacle | None:
        """Why something cannot be made, where that is among the failures."""
        refused = (f.error for f in self.failures if isinstance(f.error, ChildRefused))
        return next((error.obstacle for error in refused), None)


class ChildRefused(Exception):
    """The clone could do harm, or the cluster refuses it or its load agent; `obstacle` says why and what to do."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.message)
        self.obstacle = obstacle


class NotReadyToAct(Exception):
    """An action needs something that this tick did not see; the next tick sees anew."""


async def perform(
    writers: Writers,
    subject: RunSubject | ProfileSubject,
    actions: Sequence[RunAction | ProfileAction],
    now: datetime,
) -> None:
    """Carry out all actions in order; one that fails does not keep the others from being done.

    So a replica is given back even when a clone cannot be deleted. Raises ActionsFailed at the end.
    """
    failures: list[ActionFailure] = []
    for action in actions:
        try:
            match subject:
                case RunSubject():
                    await _perform_for_run(writers, subject, action, now)
                case ProfileSubject():
                    await _perform_for_profile(writers, subject.profile, action, now)
        except Exception as error:
            failures.append(ActionFailure(action, error))
    if failures:
        raise ActionsFailed(failures)


async def _perform_for_run(
    writers: Writers, subject: RunSubject, action: RunAction | ProfileAction, now: datetime
) -> None:
    kube, run = writers.kube, subject.run
    namespace, name = run.metadata["namespace"], run.metadata["name"]
    match action:
        case EnsureAgent():
            await _ensure_agent(writers, run)
        case DeleteAgent():
            await remove(kube, JOBS, namespace, agent_name(name), run.metadata)
            await remove(kube, SECRETS, namespace, agent_name(name), run.metadata)
        case EnsureClone():
            await _ensure_clone(writers, subject, action)
        case DeleteClone():
            await remove(kube, PODS, namespace, clone_name(name, action.start), run.metadata)
        case SetLimits():
            await _set_limits(writers, run, action)
        case StartStage():
            await _start_stage(writers, subject, action)
        case StoreSamples():
            packed = pack(action.samples, *slos_of(_plan(run).profile_spec))
            await ensure(kube, CONFIG_MAPS, build_samples(run, action.stage, packed), run.metadata)
        case ScaleWorkload():
            await scale(kube, namespace, _plan(run).profile_spec.target_ref, action)
        case EmitEvent():
            event = build_event(TUNING_RUNS, run.metadata, action, writers.settings.instance, now)
            await emit(kube, event)
        case WriteWords() | EnsureLimits() | CreateRun() | DeleteRun():
            raise TypeError(f"{type(action).__name__} is a profile's action, not a run's")
        case _:
            assert_never(action)


async def _perform_for_profile(
    writers: Writers, profile: ServingProfile, action: RunAction | ProfileAction, now: datetime
) -> None:
    kube, metadata = writers.kube, profile.metadata
    match action:
        case WriteWords():
            await write_words(kube, metadata["namespace"], profile.spec.target_ref, action)
        case EnsureLimits():
            await ensure_limits(kube, profile, action)
        case CreateRun():
            await ensure(kube, TUNING_RUNS, build_run(profile, action), metadata)
        case DeleteRun():
            await _delete_run(kube, metadata["namespace"], action.name)
        case EmitEvent():
            event = build_event(SERVING_PROFILES, metadata, action, writers.settings.instance, now)
            await emit(kube, event)
        case _:
            raise TypeError(f"{type(action).__name__} is a run's action, not a profile's")


async def _ensure_agent(writers: Writers, run: TuningRun) -> None:
    kube, endpoint, namespace = writers.kube, _plan(run).profile_spec.endpoint, run.metadata["namespace"]
    api_key, ca_bundle = endpoint.api_key_secret_ref, endpoint.ca_bundle_ref
    if api_key is not None:
        api_key = api_key.with_changes(key=await read_secret_key(kube, namespace, api_key))
    if ca_bundle is not None:
        ca_bundle = ca_bundle.with_changes(key=await read_config_map_key(kube, namespace, ca_bundle))
    secret = build_agent_secret(run, secrets.token_urlsafe(TOKEN_BYTES))
    plan = _plan(run)
    job = build_agent_job(run, writers.settings, api_key, plan.profile_spec.workload, ca_bundle, agents_of(plan))
    with _told_as_obstacle("The load agent"):
        await ensure(kube, SECRETS, secret, run.metadata)
        await ensure_working_job(kube, job, run.metadata)


async def _ensure_clone(writers: Writers, subject: RunSubject, action: EnsureClone) -> None:
    """Harmlessness is proven right before each clone is made: selectors may have changed since Preflight."""
    kube, run, workload = writers.kube, subject.run, subject.workload
    if workload is None:
        raise NotReadyToAct("the workload was not read, so it cannot be cloned")
    name = run.metadata["name"]
    if await exists(kube, PODS, workload.namespace, clone_name(name, action.start), run.metadata):
        return
    keep = _plan(run).profile_spec.probe.clone.keep
    obstacle = await read_clone_obstacle(kube, workload, name, keep)
    if obstacle is not None:
        raise ChildRefused(obstacle)
    clone = build_clone(workload, run, action, writers.settings)
    with _told_as_obstacle("The clone"):
        await ensure(kube, PODS, clone, run.metadata)


@contextmanager
def _told_as_obstacle(what: str) -> Iterator[None]:
    """Raises ChildRefused in the place of a refusal that does not pass by asking again."""
    try:
        yield
    except KubeError as error:
        obstacle = obstacle_of_refusal(error, what)
        if obstacle is None:
            raise
        raise ChildRefused(obstacle) from error


async def _set_limits(writers: Writers, run: TuningRun, action: SetLimits) -> None:
    token = await read_agent_token(writers.kube, run.metadata["namespace"], run.metadata["name"])
    if token is None:
        raise NotReadyToAct("the run's Secret is gone; it is made again")
    async with writers.connect_live(action.host, token) as live:
        await live.change(limits_of(action.setting))


async def _start_stage(writers: Writers, subject: RunSubject, action: StartStage) -> None:
    agent, metadata = subject.agent, subject.run.metadata
    if agent is None or not agent.ip:
        raise NotReadyToAct("the load agent has no address yet")
    token = await read_agent_token(writers.kube, metadata["namespace"], metadata["name"])
    if token is None:
        raise NotReadyToAct("the load agent's Secret is gone; it is made again")
    async with writers.connect_agent(agent.ip, AGENT_PORT, token) as client:
        if action.helpers:
            await client.put_helpers(Helpers(addresses=action.helpers))
        try:
            await client.put_stage(action.spec)
        except AnotherStageRuns as left_over:
            # Of a clone that is gone: the run wants one stage at a time. This one is ordered anew in the next tick.
            await client.delete_stage(left_over.running)


async def _delete_run(kube: Kube, namespace: str, name: str) -> None:
    """Runs made by hand belong to a profile by name alone, so ownership is not asked for."""
    try:
        await kube.delete(TUNING_RUNS, namespace, name)
    except NotFound:
        return


def _plan(run: TuningRun) -> RunPlan:
    if run.status.plan is None:
        raise NotReadyToAct(f"TuningRun {run.metadata['name']} has no plan yet")
    return run.status.plan
