"""What one tick of a run sees of a real API server, of engines and of load agents, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.actuate.status import write_status
from kneekeeper.api.offered_load import Closed, Fixed
from kneekeeper.api.run_pods import Borrowed, CloneState
from kneekeeper.api.serving_profile import ProbeTarget
from kneekeeper.api.stage import Limits, StageState
from kneekeeper.api.tuning_run import CurrentStage, RunStep, StageKind, Trigger, TuningRunStatus
from kneekeeper.domain.actions import CreateRun, DeleteRun, EnsureAgent, EnsureClone
from kneekeeper.domain.ladder import StageOrder
from kneekeeper.domain.observation import (
    EngineMetrics,
    ObstacleReason,
    ProductionLoad,
    RunObservation,
    StageView,
    Unreachable,
)
from kneekeeper.domain.plan.run_stage import stage_spec
from kneekeeper.kube.resources import DISRUPTION_BUDGETS, SERVICES, TUNING_RUNS
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.gather import gather_run
from kneekeeper.observe.own_resources import UnreadableResource, parse_run
from tests.integration.place import NOW, Place, make_profile, make_run
from tests.integration.surroundings import (
    SETTING,
    WORDS,
    become_ready,
    past_preflight,
    run_pod,
    serve,
)
from tests.unit.kube_objects import PRODUCT
from tests.unit.no_samples import NO_SAMPLES


async def see(place: Place, clients: Clients, status: TuningRunStatus | None = None) -> RunObservation:
    """The observation of the run with this status."""
    resource = await place.get(TUNING_RUNS, "chat-1")
    if status is not None:
        resource = await write_status(place.kube, TUNING_RUNS, resource, status)
    return await gather_run(clients, resource, NOW)


async def test_preflight_sees_the_workload_its_product_and_room_for_a_clone(place, clients, outside):
    await serve(place, node_gpus=4)
    seen = await see(place, clients)
    assert seen.profile is not None
    assert seen.workload is not None
    assert seen.workload.replicas == 2
    assert seen.gpu_product == f"{PRODUCT}-{place.namespace}"
    assert seen.gpu_room is not None
    assert seen.gpu_room.largest_free_on_a_node == 3
    assert (seen.clone, seen.agent, seen.agent_exists, seen.clone_starts) == (None, None, False, ())
    assert (seen.production, seen.obstacle) == (None, None)
    assert outside.asked == []


async def test_preflight_sees_what_forbids_a_clone(place, clients):
    await serve(place)
    budget = {"metadata": {"name": "everything"}, "spec": {"maxUnavailable": 1, "selector": {}}}
    await place.kube.create(DISRUPTION_BUDGETS, place.namespace, budget)
    seen = await see(place, clients)
    assert seen.obstacle is not None
    assert seen.obstacle.reason == ObstacleReason.CLONE_IS_SELECTED
    assert "PodDisruptionBudget everything" in seen.obstacle.message


async def test_preflight_sees_that_the_api_key_cannot_be_read(place, clients):
    await serve(place)
    await place.kube.delete(TUNING_RUNS, place.namespace, "chat-1")  # else the run waits for it
    await make_profile(place.kube, place.namespace, "keyed", endpoint={"apiKeySecretRef": {"name": "keys"}})
    run = await make_run(place.kube, place.namespace, "keyed-1", "keyed")
    obstacle = (await gather_run(clients, run, NOW)).obstacle
    assert obstacle is not None
    assert obstacle.reason == ObstacleReason.API_KEY_UNUSABLE
    assert "Secret keys does not exist; create it" in obstacle.message


async def test_a_clone_that_is_missing_makes_one_look_for_what_forbids_it(place, clients):
    await serve(place)
    service = {
        "metadata": {"name": "runs"},
        "spec": {"selector": {"kneekeeper.io/role": "clone"}, "ports": [{"port": 80}]},
    }
    await place.kube.create(SERVICES, place.namespace, service)
    clone = CloneState(start=1, setting=SETTING, since=NOW)
    obstacle = (await see(place, clients, past_preflight(RunStep.CEILING, clone=clone))).obstacle
    assert obstacle is not None
    assert obstacle.reason == ObstacleReason.CLONE_IS_SELECTED


async def test_preflight_asks_for_the_load_where_a_replica_may_be_borrowed(place, clients):
    await serve(place)
    probe = {"allow": ["BorrowReplica"]}
    await make_profile(place.kube, place.namespace, "borrowing", probe=probe)
    run = await make_run(place.kube, place.namespace, "borrowing-1", "borrowing")
    assert (await gather_run(clients, run, NOW)).production == ProductionLoad(running=3, waiting=2)


async def test_a_run_without_profile_or_workload_sees_neither(place, clients):
    seen = await see(place, clients)
    assert seen.profile is not None
    assert seen.workload is None
    orphan = await make_run(place.kube, place.namespace, "orphan-1", "absent")
    assert (await gather_run(clients, orphan, NOW)).profile is None


async def test_of_two_runs_in_preflight_exactly_one_goes_ahead(place, clients):
    await serve(place)
    other = await make_run(place.kube, place.namespace, "chat-2")
    first = (await see(place, clients)).other_active_runs
    second = (await gather_run(clients, other, NOW)).other_active_runs
    assert (first, second) == ((), ("chat-1",))


async def test_a_younger_run_that_left_preflight_goes_ahead_and_a_finished_one_does_not(place, clients):
    await serve(place)
    other = await make_run(place.kube, place.namespace, "chat-2")
    measuring = await write_status(place.kube, TUNING_RUNS, other, past_preflight(RunStep.RAMP))
    assert (await see(place, clients)).other_active_runs == ("chat-2",)
    await write_status(place.kube, TUNING_RUNS, measuring, past_preflight(RunStep.DONE))
    assert (await see(place, clients)).other_active_runs == ()


async def measuring(place: Place, **changes: Any) -> TuningRunStatus:
    """A run whose first clone and whose agent are ready."""
    await serve(place)
    await place.do(EnsureAgent(), EnsureClone(start=1, container="vllm", words=WORDS, deadline_s=600))
    await become_ready(place, "chat-1-clone-1", "10.244.0.10")
    labels = {"kneekeeper.io/run": "chat-1", "kneekeeper.io/role": "agent"}
    container = {"name": "agent", "image": "registry.example.com/kneekeeper:1"}
    pod = {"metadata": {"name": "chat-1-agent-x", "labels": labels}, "spec": {"containers": [container]}}
    await run_pod(place, pod, "10.244.0.11")
    clone = CloneState(start=1, setting=SETTING, since=NOW, ready_at=changes.pop("ready_at", NOW))
    return past_preflight(RunStep.RAMP, clone=clone, **changes)


async def test_the_first_look_at_a_ready_clone_sees_its_metrics(place, clients):
    seen = await see(place, clients, await measuring(place, ready_at=None))
    assert seen.clone is not None
    assert seen.clone.ready
    assert seen.clone.words == WORDS
    assert seen.clone_starts == (1,)
    assert seen.agent is not None
    assert seen.agent.ready
    assert seen.agent_exists
    assert isinstance(seen.clone_metrics, EngineMetrics)
    assert seen.clone_metrics.running == 3
    assert seen.stage is None


async def test_between_stages_only_the_clones_metrics_are_read(place, clients, outside):
    seen = await see(place, clients, await measuring(place))
    assert isinstance(seen.clone_metrics, EngineMetrics)
    assert outside.asked == ["/metrics"]


CURRENT = CurrentStage(name="ramp-8", kind=StageKind.RAMP, started_at=NOW)


async def test_while_a_stage_runs_only_the_agent_is_asked(place, clients, outside):
    outside.state = StageState.RUNNING
    seen = await see(place, clients, await measuring(place, current_stage=CURRENT))
    assert isinstance(seen.stage, StageView)
    assert seen.stage.status is not None
    assert seen.stage.samples is None
    [asked] = outside.asked
    assert asked.startswith("/stages/ramp-8-")


async def test_the_samples_of_an_ended_stage_are_fetched(place, clients, outside):
    outside.state = StageState.DONE
    seen = await see(place, clients, await measuring(place, current_stage=CURRENT))
    assert isinstance(seen.stage, StageView)
    assert seen.stage.samples == NO_SAMPLES


async def test_a_stage_that_the_agent_does_not_know_has_no_status(place, clients):
    seen = await see(place, clients, await measuring(place, current_stage=CURRENT))
    assert seen.stage == StageView(None, None)


async def test_an_agent_that_does_not_answer_is_unreachable(place, clients, outside):
    outside.agent_answers = False
    seen = await see(place, clients, await measuring(place, current_stage=CURRENT))
    assert isinstance(seen.stage, Unreachable)
    assert "does not answer" in seen.stage.why


async def test_the_stage_is_asked_for_by_the_id_under_which_it_is_ordered(place, clients, outside):

    seen = await see(place, clients, await measuring(place, current_stage=CURRENT))
    plan = seen.run.status.plan
    assert plan is not None
    assert seen.clone is not None
    order = StageOrder(
        name="ramp-8",
        kind=StageKind.RAMP,
        prompt_tokens=Fixed(value=1),
        output_tokens=Fixed(value=1),
        arrivals=Closed(users=8),
        limits=Limits(min_requests=1, max_requests=1, max_duration_s=1),
    )
    assert outside.asked == [f"/stages/{stage_spec(plan, order, seen.clone, plan.present).id}"]


async def test_while_a_replica_is_borrowed_the_load_of_production_is_seen(place, clients):
    await serve(place)
    borrowed = Borrowed(replicas_before=2, taken_at=NOW)
    status = past_preflight(RunStep.CEILING, ProbeTarget.BORROW_REPLICA, borrowed=borrowed)
    assert (await see(place, clients, status)).production == ProductionLoad(running=3, waiting=2)
    returned = status.with_changes(borrowed=borrowed.with_changes(returned_at=NOW))
    assert (await see(place, clients, returned)).production is None


async def test_in_place_a_serving_pod_is_the_engine_under_test(place, clients, outside):
    await serve(place, node_gpus=1)
    seen = await see(place, clients, past_preflight(RunStep.CEILING, ProbeTarget.IN_PLACE))
    assert seen.clone is not None
    assert (seen.clone.name, seen.clone.ip) == ("chat-a", "10.244.0.9")
    assert seen.clone_starts == ()
    assert isinstance(seen.clone_metrics, EngineMetrics)
    assert seen.clone_metrics.running == 3
    assert (seen.obstacle, seen.production) == (None, None)
    assert outside.asked == ["/metrics"]


async def test_in_place_the_pod_that_is_measured_is_not_mistaken_for_another(place, clients):
    await serve(place, node_gpus=1)
    found = (await see(place, clients, past_preflight(RunStep.CEILING, ProbeTarget.IN_PLACE))).clone
    assert found is not None
    pinned = CloneState(start=1, setting=SETTING, since=NOW, serving_pod=found.uid)
    status = past_preflight(RunStep.RAMP, ProbeTarget.IN_PLACE, clone=pinned)
    assert (await see(place, clients, status)).clone == found
    gone = status.with_changes(clone=pinned.with_changes(serving_pod="uid-of-another"))
    assert (await see(place, clients, gone)).clone is None


async def test_in_place_the_stage_is_asked_for_while_it_runs_and_the_engine_is_not(place, clients, outside):
    await measuring(place)
    outside.state = StageState.RUNNING
    found = (await see(place, clients, past_preflight(RunStep.CEILING, ProbeTarget.IN_PLACE))).clone
    assert found is not None
    outside.asked.clear()
    pinned = CloneState(start=1, setting=SETTING, since=NOW, serving_pod=found.uid)
    status = past_preflight(RunStep.RAMP, ProbeTarget.IN_PLACE, clone=pinned, current_stage=CURRENT)
    seen = await see(place, clients, status)
    assert isinstance(seen.stage, StageView)
    [asked] = outside.asked
    assert asked.startswith("/stages/ramp-8-")


async def test_cleaning_up_sees_every_clone_and_the_agent_without_its_pod(place, clients, outside):
    await serve(place)
    for start in (1, 2):
        await place.do(EnsureClone(start=start, container="vllm", words=WORDS, deadline_s=600))
    await place.do(EnsureAgent())
    seen = await see(place, clients, past_preflight(RunStep.CLEAN_UP))
    assert seen.clone_starts == (1, 2)
    assert (seen.agent, seen.agent_exists) == (None, True)
    assert outside.asked == []


async def test_a_run_that_is_being_deleted_asks_neither_engine_nor_agent(place, clients, outside):
    outside.state = StageState.DONE
    await measuring(place)
    await place.do_for_profile(CreateRun("chat-2", Trigger.NEW))  # has a finalizer, so it stays
    run = await place.get(TUNING_RUNS, "chat-2")
    await write_status(place.kube, TUNING_RUNS, run, past_preflight(RunStep.RAMP, current_stage=CURRENT))
    await place.do_for_profile(DeleteRun("chat-2"))
    seen = await gather_run(clients, await place.get(TUNING_RUNS, "chat-2"), NOW)
    assert seen.deleting
    assert seen.workload is not None
    assert outside.asked == []


async def test_a_finished_run_reads_nothing(place, clients, monkeypatch):
    resource = await place.get(TUNING_RUNS, "chat-1")
    done = await write_status(place.kube, TUNING_RUNS, resource, past_preflight(RunStep.DONE))
    monkeypatch.setattr(place.kube, "_api", None)
    assert (await gather_run(clients, done, NOW)).run == parse_run(done)


async def test_a_stored_object_of_another_version_names_what_does_not_fit(place, clients):
    resource = await place.get(TUNING_RUNS, "chat-1")
    resource["status"] = {"step": "Dreaming"}
    with pytest.raises(UnreadableResource, match=r"chat-1.*status\.step"):
        await gather_run(clients, resource, NOW)
