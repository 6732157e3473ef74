"""The operator as a process against a real API server: what it asks for, what it may do, what it lives through.

It acts as its ServiceAccount under the rules that the chart renders, and no other.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest
import yaml

from e2e.cluster.audit import ApiCall
from e2e.cluster.pki import service_account
from kneekeeper.api.observed import Confidence, ObservedWorkload, TrafficDrift
from kneekeeper.api.tuning_run import RunOutcome
from kneekeeper.api.workload import Workload
from kneekeeper.domain.names import FINALIZER
from kneekeeper.kube.client import REQUEST_TIMEOUT_S, Kube
from kneekeeper.kube.errors import DEFAULT_RETRY_AFTER_S
from kneekeeper.kube.resources import DEPLOYMENTS, EVENTS, SERVING_PROFILES
from tests.integration.api_use import RELEASE, render_chart
from tests.integration.operator_place import OperatorPlace, count, operator_place, quiet
from tests.integration.operator_process import OperatorProcess
from tests.integration.serving import Serving, add_node, eventually
from tests.integration.silent_proxy import silent_proxy

# Some wait for minutes, on machines that may be busy.
pytestmark = pytest.mark.timeout(300)

FULL, FREE = "GPU-without-room", "GPU-with-room"
WINDOW_S = 60.0

# Per profile and minute. Idle: a look every five minutes, and a share of the watches.
IDLE_BOUND = 2.0
# One profile whose run waits for a GPU: 13 calls of the run each 13.5 to 15 s, and 8 of its own each 27 to 30 s.
WAITING_BOUND = 90.0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorPlace]:
    """An API server of this file's own: it is counted, cut off and stopped."""
    with operator_place(tmp_path_factory.mktemp("operator")) as place:
        yield place


@pytest.fixture(scope="module", autouse=True)
def nodes(place: OperatorPlace) -> None:
    """One without a GPU to spare, one with several."""

    async def add() -> None:
        async with await Kube.connect("test", str(place.server.kubeconfig)) as kube:
            await add_node(kube, "full", FULL, gpus=0)
            await add_node(kube, "free", FREE, gpus=64)

    asyncio.run(add())


@pytest.fixture
async def kube(place: OperatorPlace) -> AsyncIterator[Kube]:
    async with await Kube.connect("test", str(place.server.kubeconfig)) as kube:
        yield kube


@pytest.fixture
def serve(place: OperatorPlace, kube: Kube) -> Callable[..., Any]:
    """Makes a namespace of serving pods."""

    async def make(namespace: str, node: str = "full") -> Serving:
        return await Serving.create(kube, namespace, node, place.engine_port)

    return make


@pytest.fixture(autouse=True)
def no_bugs(place: OperatorPlace) -> Iterator[None]:
    """No operator of this file may log an exception that nobody expected."""
    log = place.folder / "operator.log"
    log.touch()
    already = len(log.read_text())
    yield
    lines = log.read_text()[already:].splitlines()
    assert [line for line in lines if '"exception"' in line or "Traceback" in line] == []


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


async def test_a_profile_that_was_deleted_while_the_operator_was_down_is_released(place, serve, kube):
    away = await serve("away")
    await away.deploy("chat")
    with place.operator():
        await away.profile("chat")
        await away.run_waits_for("chat", "NoSpareGPU")
    await kube.delete(SERVING_PROFILES, "away", "chat")
    waits = await kube.get(SERVING_PROFILES, "away", "chat")
    assert waits["metadata"]["finalizers"] == [FINALIZER]
    with place.operator():
        await eventually("the profile is gone", lambda: away.is_gone("chat"))
    assert await away.runs("chat") == []


async def test_a_profile_whose_spec_became_unacceptable_says_so_and_recovers(place, serve):
    spec = await serve("spec")
    await spec.deploy("chat")
    with place.operator():
        await spec.profile("chat", suspend=True)
        await spec.seen("chat", 1)
        assert await spec.condition("chat", "Accepted") == "Accepted"
        await spec.seen("chat", await spec.patch("chat", "/spec/updatePolicy", {"method": "Owner"}))
        assert await spec.condition("chat", "Accepted") == "NotSupported"
        assert await spec.condition("chat", "Ready") == "NotSupported"
        await spec.seen("chat", await spec.patch("chat", "/spec/updatePolicy", {}))
        assert await spec.condition("chat", "Accepted") == "Accepted"


async def test_traffic_that_moved_starts_a_run_by_itself_and_its_reason_is_told(place, serve, kube):
    moved = await serve("moved")
    await moved.deploy("chat")

    def prompts_of(mean: int) -> Workload:
        lengths = {"distribution": "Uniform", "min": mean // 2, "max": mean + mean // 2}
        return Workload.model_validate({"promptTokens": lengths, "outputTokens": lengths})

    now = datetime.now(UTC)
    observed = ObservedWorkload(
        workload=prompts_of(900),
        confidence=Confidence.HIGH,
        requests=50_000,
        seen=86_400,
        until=now,
        requests_per_second=2,
        peak_requests_per_second=4,
        prompt_p99_lower=1000,
        prompt_p99_upper=2000,
        output_p99_lower=1000,
        output_p99_upper=2000,
    )
    began = TrafficDrift(
        since=now - timedelta(hours=3), run="chat-done", size_percent=200, message="Prompts are longer."
    )
    with place.operator():
        await moved.profile("chat", suspend=True, workload=None, retune={"on": ["Traffic"], "minInterval": "1s"})
        await moved.measure("chat", RunOutcome.CERTIFIED, learned=prompts_of(600))
        await moved.tell("chat", observed_workload=observed, traffic_drift=began)
        await moved.patch("chat", "/spec/suspend", False)

        async def started() -> dict[str, Any] | None:
            return next((run for run in await moved.runs("chat") if run["spec"].get("trigger") == "Traffic"), None)

        run = await eventually("a run for the traffic is started", started)

        async def told() -> str | None:
            notes = [event["note"] for event in await kube.list(EVENTS, "moved") if event["reason"] == "RunStarted"]
            return next((note for note in notes if run["metadata"]["name"] in note), None)

        note = await eventually("the reason is told", told)
    assert "prompts have 900 tokens on average instead of 600" in note
    drift = (await moved.status("chat"))["trafficDrift"]
    assert drift["since"] == began.to_resource()["since"]


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


async def test_two_operators_at_once_start_each_run_once(place, serve):
    twice = await serve("twice")
    names = ["a", "b", "c", "d"]
    for name in names:
        await twice.deploy(name)
    with place.operator() as one, place.operator() as other:
        for name in names:
            await twice.profile(name)
        for name in names:
            await twice.run_waits_for(name, "NoSpareGPU")
            await eventually(f"{name} has one run in its status", partial(_has_one_run, twice, name))
        for operator in (one, other):
            for kind in ("ServingProfile", "TuningRun"):
                await eventually(
                    f"each operator looks at every {kind}", partial(_has_looked, operator, kind, len(names))
                )
    assert [len(await twice.runs(name)) for name in names] == [1] * len(names)


async def _has_looked(operator: OperatorProcess, kind: str, times: int) -> bool:
    return operator.ticks(kind) >= times


async def _has_one_run(serving: Serving, name: str) -> bool:
    return len((await serving.status(name)).get("runs", [])) == 1


async def test_an_operator_that_loses_its_api_server_for_ten_seconds_goes_on(place, serve):
    lost = await serve("lost")
    await lost.deploy("chat")
    with place.operator() as operator:
        await lost.profile("chat")
        await lost.run_waits_for("chat", "NoSpareGPU")
        api_server = place.api_server_process()
        api_server.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(10)
            assert operator.is_healthy()
        finally:
            api_server.send(signal.SIGCONT)
        await lost.seen("chat", await lost.patch("chat", "/spec/runHistoryLimit", 7))
        assert operator.is_running()
        assert len(await lost.runs("chat")) == 1


SILENCE_S = 20.0
# After the silence the look that the event asks for may be sent on a connection that was cut too, and once more.
DEAF_S = SILENCE_S + REQUEST_TIMEOUT_S + DEFAULT_RETRY_AFTER_S + 15.0


async def test_watches_that_are_cut_without_a_word_leave_the_operator_deaf_for_a_bounded_time_only(
    place, serve, tmp_path, capsys
):
    deaf = await serve("deaf")
    await deaf.deploy("chat")
    async with silent_proxy(place.server_port) as proxy:
        kubeconfig = tmp_path / "through-the-proxy"
        kubeconfig.write_text(place.kubeconfig.read_text().replace(f":{place.server_port}", f":{proxy.port}"))
        with place.operator(kubeconfig, watch_silence_s=str(SILENCE_S)) as operator:
            await deaf.profile("chat", suspend=True)
            await deaf.seen("chat", 1)
            await quiet(place, "deaf")
            assert proxy.cut() >= len(("profiles", "runs", "deployments"))
            generation, begin = await deaf.patch("chat", "/spec/runHistoryLimit", 7), time.monotonic()
            await asyncio.sleep(3)
            assert (await deaf.status("chat"))["observedGeneration"] < generation, "the cut was not silent"
            await deaf.seen("chat", generation, within_s=DEAF_S)
            told = {"silence_s": SILENCE_S, "deaf_s": round(time.monotonic() - begin, 1), "bound_s": DEAF_S}
            with capsys.disabled():
                print("\n" + json.dumps({"deafness": told}))
            assert operator.is_healthy()
