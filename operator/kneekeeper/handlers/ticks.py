"""One tick of one object: observe, decide, store, act. The same for profiles and runs, alive or being deleted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from kneekeeper.actuate.apply import ActionsFailed, ProfileSubject, RunSubject, Writers, perform
from kneekeeper.actuate.status import write_conditions, write_status
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.tuning_run import RunStep, TuningRunStatus
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan import run as run_plan
from kneekeeper.handlers import telemetry
from kneekeeper.handlers.agenda import Key
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import NotFound
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS, Resource
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.gather import gather_profile, gather_run
from kneekeeper.observe.own_resources import UnreadableResource, parse_profile_status, readable_conditions

log = logging.getLogger(__name__)

PROFILE = SERVING_PROFILES.name
RUN = TUNING_RUNS.name


@dataclass(frozen=True)
class Connections:
    """What a tick reads and writes through, and the clock."""

    clients: Clients
    writers: Writers
    clock: Callable[[], datetime]


@dataclass(frozen=True)
class TickResult:
    """When the object is looked at next, whether its finalizer may go, and at which generation it was read."""

    next_tick_s: float
    release: bool
    generation: int = 0
    waits: bool = False
    """For what may take long: how often it is looked at meanwhile is for the fleet to say."""


GONE = TickResult(next_tick_s=0.0, release=True)


async def tick(to: Connections, key: Key, runs_ahead: int = 0) -> TickResult:
    """Do one tick. Whatever it raises, nothing is lost: the next tick starts from what is stored.

    `runs_ahead` is how many runs of the fleet go before this one.
    """
    return await (_tick_profile(to, key) if key.kind == PROFILE else _tick_run(to, key, runs_ahead))


async def _tick_profile(to: Connections, key: Key) -> TickResult:
    kube, now = to.clients.kube, to.clock()
    try:
        resource = await kube.get(SERVING_PROFILES, key.namespace, key.name)
    except NotFound:
        return GONE
    try:
        seen = await gather_profile(to.clients, resource, now)
    except UnreadableResource as error:
        await _tell_not_understood(kube, resource, now, str(error))
        raise
    decision = profile_plan.decide(seen)
    await write_status(kube, SERVING_PROFILES, resource, decision.status, seen.profile.status)
    stored = seen.profile.with_changes(status=decision.status)
    telemetry.FLEET.profile_seen(key, stored, seen.profile.status)
    _tell(key, seen.profile.status.stage, decision.status.stage)
    await perform(to.writers, ProfileSubject(stored), decision.actions, now)
    waits = any(_waits(run.status) for run in seen.runs)
    return TickResult(decision.next_tick_s, decision.release, resource["metadata"]["generation"], waits)


async def _tell_not_understood(kube: Kube, resource: Resource, now: datetime, why: str) -> None:
    read, generation = parse_profile_status(resource), int(resource["metadata"]["generation"])
    before = read if read is not None else ServingProfileStatus(conditions=readable_conditions(resource))
    told = profile_plan.not_understood(before, generation, now, why)
    if read is not None:
        await write_status(kube, SERVING_PROFILES, resource, told, read)
    else:
        await write_conditions(kube, SERVING_PROFILES, resource, told.conditions)


async def _tick_run(to: Connections, key: Key, runs_ahead: int) -> TickResult:
    kube, now = to.clients.kube, to.clock()
    try:
        resource = await kube.get(TUNING_RUNS, key.namespace, key.name)
    except NotFound:
        return GONE
    seen = await gather_run(to.clients, resource, now, runs_ahead)
    # A tick that fits and chooses computes for seconds, most of them without the interpreter's lock.
    decision = await asyncio.to_thread(run_plan.decide, seen)
    await perform(to.writers, RunSubject(seen.run, seen.workload, seen.agent), decision.evidence, now)
    resource = await write_status(kube, TUNING_RUNS, resource, decision.status, seen.run.status)
    stored = seen.run.with_changes(status=decision.status)
    telemetry.FLEET.run_seen(key, stored, seen.run.status)
    _tell(key, seen.run.status.message, decision.status.message)
    try:
        await perform(to.writers, RunSubject(stored, seen.workload, seen.agent), decision.actions, now)
    except ActionsFailed as failed:
        if failed.obstacle is None:
            raise
        # The next tick would see that something is missing, and not why.
        refused = run_plan.decide(replace(seen, run=stored, obstacle=failed.obstacle))
        if refused.status == stored.status:
            raise
        await write_status(kube, TUNING_RUNS, resource, refused.status)
    generation = int(resource["metadata"]["generation"])
    return TickResult(decision.next_tick_s, decision.release, generation, _waits(decision.status))


def _waits(status: TuningRunStatus) -> bool:
    return status.step == RunStep.PREFLIGHT and bool(status.waiting_for)


def _tell(key: Key, before: str, after: str) -> None:
    if after != before:
        log.info("%s", after, extra=telemetry.fields(key))
