"""A quota that has no room for the clone, at a real API server: told in the run at once, and nothing is left."""

from __future__ import annotations

import httpx
import pytest

from kneekeeper.actuate.apply import ActionsFailed, ChildRefused
from kneekeeper.actuate.status import write_status
from kneekeeper.api.model import Setting
from kneekeeper.api.run_pods import CloneState
from kneekeeper.api.tuning_run import RunOutcome, RunStep
from kneekeeper.domain.actions import EnsureClone
from kneekeeper.domain.observation import ObstacleReason
from kneekeeper.domain.target import Target, resolve
from kneekeeper.handlers.agenda import Key
from kneekeeper.handlers.ticks import RUN, Connections, tick
from kneekeeper.kube.resources import PODS, TUNING_RUNS, Kind
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.own_resources import parse_run
from kneekeeper.observe.target import read_workload
from tests.integration.place import NOW, REF, Place
from tests.integration.surroundings import WORDS
from tests.unit.kube_objects import template, tuning_run

QUOTAS = Kind("", "v1", "resourcequotas", "ResourceQuota")
SETTING = Setting(max_num_seqs=256, max_num_batched_tokens=2048)


async def forbid_pods(place: Place) -> None:
    """A quota as its controller, which does not run here, has counted it."""
    hard = {"pods": "0"}
    made = await place.kube.create(QUOTAS, place.namespace, {"metadata": {"name": "small"}, "spec": {"hard": hard}})
    status = {"hard": hard, "used": {"pods": "0"}}
    await place.kube.replace_status(QUOTAS, place.namespace, "small", {**made, "status": status})


async def test_a_clone_beyond_the_quota_is_an_obstacle_with_the_servers_words(place: Place):
    await place.deploy(template())
    await forbid_pods(place)
    with pytest.raises(ActionsFailed, match="exceeded quota: small") as failed:
        await place.do(EnsureClone(start=1, container="vllm", words=WORDS, deadline_s=100))
    assert isinstance(failed.value.failures[0].error, ChildRefused)
    assert failed.value.obstacle is not None
    assert failed.value.obstacle.reason is ObstacleReason.QUOTA_EXCEEDED


async def test_a_run_whose_clone_is_beyond_the_quota_ends_in_the_same_tick_and_says_why(place: Place):
    await place.deploy(template())
    await forbid_pods(place)
    workload = await read_workload(place.kube, place.namespace, REF)
    assert workload is not None
    target = resolve(workload.view, REF)
    assert isinstance(target, Target)
    planned = tuning_run(gpu_product="").status
    assert planned.plan is not None
    plan = planned.plan.with_changes(fingerprint=target.fingerprint, present=target.present)
    status = planned.with_changes(
        plan=plan,
        step=RunStep.CEILING,
        started_at=NOW,
        clone=CloneState(start=1, setting=SETTING, since=NOW),
    )
    await write_status(place.kube, TUNING_RUNS, place.run, status)
    async with httpx.AsyncClient() as http:
        connections = Connections(Clients(place.kube, http), place.writers, lambda: NOW)
        await tick(connections, Key(RUN, place.namespace, "chat-1"))
    found = parse_run(await place.get(TUNING_RUNS, "chat-1")).status
    assert (found.step, found.outcome, found.cause) == (RunStep.CLEAN_UP, RunOutcome.FAILED, "QuotaExceeded")
    assert "exceeded quota: small" in found.message
    assert await place.names(PODS) == []
