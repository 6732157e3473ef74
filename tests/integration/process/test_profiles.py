"""Profiles of which the operator knows by its watches alone: they change, their traffic moves, two operators look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from kneekeeper.api.observed import Confidence, ObservedWorkload, TrafficDrift
from kneekeeper.api.tuning_run import RunOutcome
from kneekeeper.api.workload import Workload
from kneekeeper.kube.resources import EVENTS
from tests.integration.operator_process import OperatorProcess
from tests.integration.serving import Serving, eventually

# Some wait for minutes, on machines that may be busy.
pytestmark = pytest.mark.timeout(600)


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
