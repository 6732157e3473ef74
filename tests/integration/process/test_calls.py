"""What the operator asks of the API server: how often, where it may, and again where it lost a race."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import httpx
import pytest
import yaml

from e2e.cluster.audit import ApiCall
from e2e.cluster.pki import service_account
from kneekeeper.api.tuning_run import RunOutcome
from kneekeeper.kube.resources import DEPLOYMENTS
from tests.integration.api_use import RELEASE, render_chart
from tests.integration.operator_place import count, quiet

# Some wait for minutes, on machines that may be busy.
pytestmark = pytest.mark.timeout(600)

WINDOW_S = 60.0

# Per profile and minute. Idle: a look every five minutes, and a share of the watches.
IDLE_BOUND = 2.0
# One profile whose run waits for a GPU: 13 calls of the run each 13.5 to 15 s, and 8 of its own each 27 to 30 s.
WAITING_BOUND = 90.0


async def test_an_idle_profile_costs_two_calls_a_minute_at_most_and_a_waiting_one_a_bounded_number(
    place, serve, kube, capsys
):
    idle, active = await serve("idle"), await serve("active")
    suspended, off, recommended = ["s-0", "s-1", "s-2", "s-3"], ["o-0", "o-1", "o-2"], ["r-0", "r-1", "r-2"]
    everyone = [*suspended, *off, *recommended]
    for name in everyone:
        await idle.deploy(name)
    with place.operator() as operator:
        for name in everyone:
            mode = "Off" if name in off else "Recommend"
            await idle.profile(name, suspend=True, updatePolicy={"mode": mode})
        for name in [*off, *recommended]:
            outcome = RunOutcome.NO_IMPROVEMENT if name in off else RunOutcome.CERTIFIED
            await idle.measure(name, outcome)
            await idle.patch(name, "/spec/suspend", False)
        await active.deploy("chat")
        await active.profile("chat")
        await active.run_waits_for("chat", "NoSpareGPU")
        await quiet(place, "idle")
        for name in recommended:
            assert (await idle.status(name))["recommendation"]["setting"]["maxNumSeqs"] == 64
        begin = datetime.now(UTC)
        await asyncio.sleep(WINDOW_S)
        calls = place.calls()
        window = count(calls, begin)
        [shown] = window_runs = await active.runs("chat")
        assert [len(await idle.runs(name)) for name in everyone] == [0] * len(suspended) + [1] * 6, window_runs

        # What the window is too short for: the look that every idle profile gets each five minutes.
        before, begin_look = operator.ticks("ServingProfile"), datetime.now(UTC)
        for name in everyone:
            operation = {"op": "add", "path": "/spec/revisionHistoryLimit", "value": 3}
            await kube.json_patch(DEPLOYMENTS, "idle", name, [operation])
        await asyncio.sleep(1)
        await quiet(place, "idle")
        look = count(place.calls(), begin_look)
        looks = operator.ticks("ServingProfile") - before
    minutes = WINDOW_S / 60
    # Each look also reads the pods' node, which is in no namespace.
    calls_per_look = look.by_namespace["idle"] / len(everyone) + 1
    in_window = (window.by_namespace["idle"] + window.watches) / minutes / len(everyone)
    told = {
        "idle_profiles": len(everyone),
        "idle_calls_per_profile_and_minute_in_window": in_window,
        "idle_calls_per_look": calls_per_look,
        "idle_calls_per_profile_and_minute": in_window + calls_per_look / (0.95 * 5),
        "watch_connections_per_minute": window.watches / minutes,
        "looks_in_the_second_window": looks,
        "waiting_calls_per_minute": (window.by_namespace["active"] + window.by_namespace[""]) / minutes,
        "waiting_calls": dict(window.by_permission.most_common()),
        "waiting_message": shown["status"]["message"],
    }
    with capsys.disabled():
        print("\n" + json.dumps({"api_calls": told}))
    assert looks >= len(everyone)
    assert told["idle_calls_per_profile_and_minute"] <= IDLE_BOUND
    assert 0 < told["waiting_calls_per_minute"] <= WAITING_BOUND


async def test_with_roles_in_its_namespaces_alone_nothing_is_forbidden_and_nothing_asked_outside(place, serve):
    release = "namespaced"
    user = service_account(release, RELEASE)
    team, other = await serve("team-a"), await serve("team-b")
    place.kubectl("create", "namespace", release)
    place.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(render_chart(release, ("team-a",))))
    for serving in (team, other):
        await serving.deploy("chat")
    with place.operator(place.server.kubeconfig_of(release, user), watch_namespaces="team-a"):
        for serving in (team, other):
            await serving.profile("chat")
        await team.run_waits_for("chat", "NoSpareGPU")
        assert await other.status("chat") == {}
        calls = [call for call in place.calls(user.user) if call.resource]
    assert [(call.verb, call.uri) for call in calls if call.status_code == httpx.codes.FORBIDDEN] == []
    assert {call.resource for call in calls if call.namespace != "team-a"} <= {"nodes", "pods", "podmonitors"}


async def test_a_conflict_of_status_writes_loses_nothing(place, serve):
    """Somebody writes to the profile between the operator's read and its write, until it has lost the race."""
    busy = await serve("busy")
    await busy.deploy("chat")

    def lost() -> list[ApiCall]:
        told = [c for c in place.calls() if c.namespace == "busy" and c.resource == "servingprofiles/status"]
        return [c for c in told if c.status_code == httpx.codes.CONFLICT]

    with place.operator():
        await busy.profile("chat")
        for number in range(2000):
            await busy.patch("chat", "/metadata/annotations", {"kneekeeper.io/approve": str(number)})
            if number % 50 == 0 and lost():
                break
        assert lost() != []
        await busy.run_waits_for("chat", "NoSpareGPU")
        await busy.seen("chat", await busy.patch("chat", "/spec/runHistoryLimit", 7))
        [run] = await busy.runs("chat")
        status = await busy.status("chat")
    assert [known["name"] for known in status["runs"]] == [run["metadata"]["name"]]
    assert status["activeRun"] == run["metadata"]["name"]
