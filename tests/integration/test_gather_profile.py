"""What one tick of a profile sees of a real API server and of its engines."""

from __future__ import annotations

from datetime import timedelta

import httpx

from kneekeeper.actuate.status import write_status
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.rollout import Rollout, RolloutStep
from kneekeeper.api.tuning_run import RunStep, Trigger
from kneekeeper.domain.actions import CreateRun
from kneekeeper.domain.observation import EngineMetrics, ProfileObservation, Unreachable
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS
from kneekeeper.observe.clients import Clients, ObserveSettings
from kneekeeper.observe.gather import gather_profile
from tests.integration.place import NOW, Place, make_profile, make_run
from tests.integration.surroundings import SETTING, WORDS, past_preflight, serve
from tests.unit.kube_objects import PRODUCT


async def see_profile(place: Place, clients: Clients, status: ServingProfileStatus | None = None) -> ProfileObservation:
    resource = await place.get(SERVING_PROFILES, "chat")
    if status is not None:
        resource = await write_status(place.kube, SERVING_PROFILES, resource, status)
    return await gather_profile(clients, resource, NOW)


async def run_is_in(place: Place, step: RunStep) -> None:
    resource = await place.get(TUNING_RUNS, "chat-1")
    await write_status(place.kube, TUNING_RUNS, resource, past_preflight(step))


async def test_an_idle_profile_sees_its_pods_their_metrics_and_its_runs(place, clients):
    await serve(place)
    await run_is_in(place, RunStep.DONE)
    seen = await see_profile(place, clients)
    assert [run.metadata["name"] for run in seen.runs] == ["chat-1"]
    assert seen.pods is not None
    [pod] = seen.pods
    assert (pod.name, pod.ip, pod.gpu_product) == ("chat-a", "10.244.0.9", f"{PRODUCT}-{place.namespace}")
    assert seen.pod_metrics is not None
    metrics = seen.pod_metrics["chat-a"]
    assert isinstance(metrics, EngineMetrics)
    assert metrics.waiting == 2
    assert seen.violations is None


async def test_while_a_run_waits_the_serving_pods_are_seen_so_that_a_crash_is_told(place, clients):
    await serve(place)
    seen = await see_profile(place, clients)
    assert seen.pods is not None


async def test_while_a_run_is_measuring_the_serving_pods_are_left_alone(place, clients, outside):
    await serve(place)
    await run_is_in(place, RunStep.RAMP)
    seen = await see_profile(place, clients)
    assert (seen.pods, seen.pod_metrics) == (None, None)
    assert outside.asked == []


async def test_a_rollout_is_watched_even_while_a_run_is_under_way(place, clients):
    await serve(place)
    rollout = Rollout(
        step=RolloutStep.VERIFY, setting=SETTING, before=WORDS, after=WORDS, started_at=NOW, verify_from=NOW
    )
    assert (await see_profile(place, clients, ServingProfileStatus(rollout=rollout))).pods is not None


async def test_a_pod_that_does_not_answer_is_unreachable(place, clients):
    await serve(place)
    await run_is_in(place, RunStep.DONE)
    silent = Clients(place.kube, httpx.AsyncClient(transport=httpx.MockTransport(refuse)), clients.connect_agent)
    seen = await see_profile(place, silent)
    assert seen.pod_metrics is not None
    assert isinstance(seen.pod_metrics["chat-a"], Unreachable)


async def test_history_is_read_every_half_hour_and_not_while_pods_are_replaced(place, clients):
    await serve(place)
    fresh, old = (ServingProfileStatus(history_read_at=NOW - timedelta(minutes=ago)) for ago in (29, 31))
    rollout = Rollout(step=RolloutStep.PROGRESS, setting=SETTING, before=WORDS, after=WORDS, started_at=NOW)
    assert (await see_profile(place, clients)).history_read
    assert (await see_profile(place, clients, old)).history_read
    assert not (await see_profile(place, clients, fresh)).history_read
    assert not (await see_profile(place, clients, ServingProfileStatus(rollout=rollout))).history_read


async def test_a_prometheus_that_does_not_answer_was_not_read(place, clients):
    await serve(place)
    settings = ObserveSettings(prometheus_url="http://127.0.0.1:9")
    silent = Clients(place.kube, clients.http, clients.connect_agent, settings=settings)
    seen = await see_profile(place, silent)
    assert (seen.history, seen.history_read) == (None, False)


def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


async def test_a_workload_of_another_kind_is_a_problem_that_is_told(place, clients):
    ref = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "chat"}
    other = await make_profile(place.kube, place.namespace, "stateful", targetRef=ref)
    seen = await gather_profile(clients, other, NOW)
    assert seen.workload is None
    assert "DaemonSet" in seen.workload_problem


async def test_an_absent_workload_is_no_problem_but_absence(place, clients):
    seen = await see_profile(place, clients)
    assert (seen.workload, seen.workload_problem, seen.pods) == (None, "", None)


async def test_the_younger_of_two_profiles_on_one_workload_sees_the_older(place, clients):
    other = await make_profile(place.kube, place.namespace, "chat-b")
    assert (await gather_profile(clients, other, NOW)).older_profiles_on_target == ("chat",)
    assert (await see_profile(place, clients)).older_profiles_on_target == ()


async def test_runs_of_other_profiles_are_not_this_profiles(place, clients):
    await make_run(place.kube, place.namespace, "other-1", "other")
    await place.do_for_profile(CreateRun("chat-2", Trigger.NEW))
    seen = await see_profile(place, clients)
    assert [run.metadata["name"] for run in seen.runs] == ["chat-1", "chat-2"]
