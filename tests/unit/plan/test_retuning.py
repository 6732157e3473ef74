"""What starts a run again, and what holds it back: intervals, cool-down, windows, and triggers that are listed."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.world import PROFILE_SPEC, World, settled

HOUR_S = 3600.0
NIGHTLY = {"allow": ["Clone"], "window": {"schedule": "0 3 * * *", "timeZone": "UTC", "duration": "2h"}}


def probing(world: World) -> str:
    found = find(world.profile.status.conditions, ConditionType.PROBING)
    return found.reason if found is not None else ""


def triggers(world: World) -> list[str]:
    return [r.trigger for r in world.profile.status.runs]


def test_the_first_run_of_a_new_engine_does_not_wait_for_the_interval():
    world = settled(updatePolicy={"mode": "Off"})
    world.set_args([*world.args, "--enforce-eager"])
    world.run_for(60)
    assert triggers(world) == ["New", "Arguments"]


def test_a_run_that_failed_is_tried_again_an_interval_after_it_began():
    world = World(spec=PROFILE_SPEC | {"retune": {"minInterval": "2h"}}, failing="ramp-1")
    world.settle()
    assert probing(world) == "MinInterval"
    world.run_for(1.9 * HOUR_S - (world.now - world.profile.status.runs[0].started_at).total_seconds())  # type: ignore[operator]
    assert triggers(world) == ["New"]
    world.run_for(0.2 * HOUR_S)
    assert triggers(world) == ["New", "Retry"]


def test_an_engine_that_keeps_changing_is_cooled_down():
    """As under a tool that writes a new value into some argument at every sync."""
    world = settled(updatePolicy={"mode": "Off"})
    held = set()
    for sync in range(14):
        world.set_args([*world.original_args, f"--served-model-name=build-{sync}"])
        world.run_for(HOUR_S)
        held.add(probing(world))
    assert 4 <= len(world.created_runs) <= 1 + 3 * 3
    assert "CoolDown" in held
    started = [r.started_at for r in world.profile.status.runs if r.trigger == "Arguments"]
    for first, fourth in zip(started, started[3:], strict=False):
        assert first is not None
        assert fourth is not None
        assert (fourth - first).total_seconds() >= 6 * HOUR_S


def test_of_several_changes_a_listed_one_starts_the_run():
    world = settled(updatePolicy={"mode": "Off"}, retune={"on": ["Model"]})
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.run_for(HOUR_S)
    assert triggers(world) == ["New"]
    world.set_args(["serve", "small", *world.args[2:]])
    world.run_for(60)
    assert triggers(world) == ["New", "Model"]


def test_an_edit_of_the_profile_counts_although_an_unlisted_change_came_before():
    world = settled(updatePolicy={"mode": "Off"}, retune={"on": ["Model"]})
    world.set_image("vllm/vllm-openai:v0.33.0")
    world.run_for(HOUR_S)
    world.edit_profile(slo={"p99TPOT": "24ms"})
    world.run_for(60)
    assert triggers(world) == ["New", "Profile"]


@pytest.mark.parametrize("on", ["Image", "Model", "Arguments", "Hardware"])
def test_a_trigger_that_is_not_listed_starts_nothing_in_a_day(on: str):
    listed = [t for t in ("Image", "Model", "Arguments", "Hardware") if t != on]
    world = settled(updatePolicy={"mode": "Off"}, retune={"on": listed})
    match on:
        case "Image":
            world.set_image("vllm/vllm-openai:v0.33.0")
        case "Model":
            world.set_args(["serve", "small", *world.args[2:]])
        case "Arguments":
            world.set_args([*world.args, "--enforce-eager"])
        case _:
            world.gpu_product = "H100"
    world.run_for(24 * HOUR_S)
    assert triggers(world) == ["New"]


BREACH = {"on": ["SLOBreach"], "minInterval": "2h"}


def test_a_breach_starts_runs_with_growing_pauses_while_it_lasts():
    world = settled(updatePolicy={"mode": "Off"}, retune=BREACH)
    world.missing_share = 0.2
    world.run_for(24 * HOUR_S)
    starts = [r.started_at for r in world.profile.status.runs]
    assert triggers(world) == ["New", *["SLOBreach"] * 3]
    pauses = [(b - a).total_seconds() for a, b in pairwise(starts)]  # type: ignore[operator]
    assert [round(pause / HOUR_S) for pause in pauses] == [2, 4, 8]


@pytest.mark.parametrize(("share", "on"), [(0.01, ["SLOBreach"]), (0.05, ["SLOBreach"]), (0.5, ["Image"])])
def test_a_share_that_is_allowed_or_not_watched_starts_nothing(share: float, on: list[str]):
    world = settled(updatePolicy={"mode": "Off"}, retune={"on": on, "minInterval": "2h"})
    world.missing_share = share
    world.run_for(12 * HOUR_S)
    assert triggers(world) == ["New"]


def test_a_run_waits_for_its_window_and_runs_in_it():
    world = World(spec=PROFILE_SPEC | {"probe": NIGHTLY})
    world.run_for(2.9 * HOUR_S)
    assert triggers(world) == []
    assert probing(world) == "OutsideWindow"
    world.run_for(0.3 * HOUR_S)
    assert triggers(world) == ["New"]
    world.settle()
    assert world.last_run.status.outcome == "Certified"


def test_a_run_that_outlasts_its_window_ends_with_it_and_starts_anew_in_the_next():
    window = {"schedule": "0 3 * * *", "duration": "35m"}
    short = NIGHTLY | {"window": window, "budget": {"maxMeasureDuration": "2h"}}
    world = World(spec=PROFILE_SPEC | {"probe": short}, hanging="ramp-1")
    world.run_for(3.1 * HOUR_S)
    assert world.clones
    world.run_for(HOUR_S)
    assert not world.clones
    assert world.last_run.status.cause == "WindowClosed"
    world.hanging = ""
    world.run_for(24 * HOUR_S)
    assert world.last_run.status.outcome == "Certified"


@pytest.mark.parametrize(
    ("window", "named"),
    [
        ({"schedule": "0 3 * * *", "timeZone": "Mars/Olympus", "duration": "1h"}, "timeZone"),
        ({"schedule": "0 99 * * *", "duration": "1h"}, "schedule"),
        ({"schedule": "0 3 30 2 *", "duration": "1h"}, "schedule"),
    ],
)
def test_a_window_that_never_opens_is_refused(window: dict[str, str], named: str):
    spec = ServingProfileSpec.model_validate(json.loads(json.dumps(PROFILE_SPEC | {"probe": {"window": window}})))
    problem = spec_problem(spec)
    assert problem is not None
    assert problem.reason == "InvalidWindow"
    assert named in problem.message


def test_a_traffic_trigger_beside_a_declared_workload_is_refused_by_name_with_the_reason():
    declared = PROFILE_SPEC | {"retune": {"on": ["Image", "Traffic"]}}
    problem = spec_problem(ServingProfileSpec.model_validate(declared))
    assert problem is not None
    assert problem.reason == "NotSupported"
    assert "Traffic" in problem.message
    assert "leave spec.workload out" in problem.message


def test_a_traffic_trigger_is_accepted_where_the_workload_is_learned_whatever_the_schedules_declare():
    learned = {name: value for name, value in PROFILE_SPEC.items() if name != "workload"}
    night = {"cron": "0 20 * * *", "duration": "12h", "workload": PROFILE_SPEC["workload"]}
    spec = learned | {"retune": {"on": ["Image", "Traffic"]}, "schedules": [night]}
    assert spec_problem(ServingProfileSpec.model_validate(spec)) is None
