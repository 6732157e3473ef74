"""How the load agent is governed: orders, refusals, cancellation, and the deaths of its processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import pytest_asyncio

from kneekeeper.api.offered_load import Closed, Uniform
from kneekeeper.api.stage import Outcome, Slo, StageState
from kneekeeper.domain.samples import StageData
from kneekeeper.load.agent import ENDED
from kneekeeper.load.client import AgentClient, AgentRefused, AgentUnreachable, AnotherStageRuns, StageUnknown
from tests.contract.agent_process import TOKEN, AgentProcess, agent_process, stage
from tests.contract.raw_server import Behaviour, raw_server


@pytest_asyncio.fixture
async def agent(tmp_path: Path) -> AsyncIterator[AgentProcess]:
    async with agent_process(tmp_path) as running:
        yield running


async def test_the_api_key_reaches_the_target_and_nothing_else(tmp_path):
    async with agent_process(tmp_path, api_key="key-of-the-target") as agent, raw_server() as server:
        status, samples = await agent.measure(stage(server.port))
    assert {truth.authorization for truth in server.seen} == {"Bearer key-of-the-target"}
    assert "key-of-the-target" not in status.model_dump_json() + samples.model_dump_json()


async def test_a_stage_that_is_ordered_twice_runs_once(agent):
    async with raw_server() as server:
        spec = stage(server.port)
        await agent.client.put_stage(spec)
        await agent.client.put_stage(spec)
        await agent.ended(spec.id)
        again = await agent.client.put_stage(spec)
        assert again.state is StageState.DONE
        with pytest.raises(AgentRefused, match="another spec") as refusal:
            await agent.client.put_stage(spec.model_copy(update={"seed": 8}))
        assert refusal.value.status == 409
        assert len(server.seen) == spec.limits.max_requests


async def test_only_one_stage_runs_and_samples_wait_for_its_end(agent):
    async with raw_server(Behaviour(first_token_s=30)) as server:
        await agent.client.put_stage(stage(server.port, id="first"))
        with pytest.raises(AnotherStageRuns, match="stage first is running") as refusal:
            await agent.client.put_stage(stage(server.port, id="second"))
        assert refusal.value.running == "first"
        with pytest.raises(AgentRefused, match="still running"):
            await agent.client.get_samples("first")
        with pytest.raises(StageUnknown):
            await agent.client.get_stage("second")


async def test_a_deleted_stage_is_cancelled_with_its_open_requests_as_rows(agent):
    async with raw_server(Behaviour(first_token_s=30)) as server:
        await agent.client.put_stage(stage(server.port, id="slow"))
        await agent.begun("slow", sent=4)
        await agent.client.delete_stage("slow")
        status = await agent.ended("slow", within_s=10)
        samples = await agent.client.get_samples("slow")
        assert status.state is StageState.CANCELLED
        assert samples.outcome == [Outcome.ABORTED] * 4
        assert status.in_flight == 4
        assert agent.workers() == []
        await agent.client.put_stage(stage(server.port, id="next"))


async def test_the_token_is_needed_for_everything_but_health(agent):
    async with httpx.AsyncClient(base_url=agent.url, trust_env=False) as stranger:
        assert (await stranger.get("/healthz")).status_code == 200
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}):
            for method, path in (("GET", "/stages/a"), ("PUT", "/stages/a"), ("DELETE", "/stages/a"), ("GET", "/")):
                answer = await stranger.request(method, path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    async with AgentClient(agent.url, "wrong") as client:
        with pytest.raises(AgentRefused, match="token"):
            await client.get_stage("a")


async def test_requests_that_the_agent_does_not_take_are_refused_with_a_reason(agent):
    spec = stage(80, id="stage-1")
    async with httpx.AsyncClient(
        base_url=agent.url, headers={"authorization": f"Bearer {TOKEN}"}, trust_env=False
    ) as client:
        named = spec.model_dump_json().replace("127.0.0.1", "vllm.default.svc")
        answers = {
            "a name for a host": await client.put("/stages/stage-1", content=named),
            "another id": await client.put("/stages/other", content=spec.model_dump_json()),
            "no JSON": await client.put("/stages/stage-1", content=b"{"),
        }
        assert {answer.status_code for answer in answers.values()} == {422}
        assert "not a name" in answers["a name for a host"].json()["message"]
        assert (await client.put("/stages/stage-1", content=b"x" * 70_000)).status_code == 413
        assert (await client.get("/stages/stage-1", headers={"x": "y" * 20_000})).status_code == 431
        assert (await client.post("/stages/stage-1")).status_code == 405
        assert (await client.get("/elsewhere")).status_code == 404


async def test_a_client_that_was_starved_makes_the_stage_invalid_and_reports_no_faster_decode(agent):
    # Lengths differ and first tokens take their time, so that some stream waits for one at any moment.
    behaviour = Behaviour(first_token_s=0.2, gap_s=0.02)
    async with raw_server(behaviour) as server:
        spec = stage(
            server.port,
            arrivals=Closed(users=16),
            output_tokens=Uniform(low=10, high=30),
            slo=Slo(),
            limits={"max_requests": 100_000, "max_duration_s": 3.0, "min_requests": 99_999},
        )
        await agent.client.put_stage(spec)
        await agent.begun(spec.id)
        (worker,) = agent.workers()
        await asyncio.sleep(0.5)
        os.kill(worker, signal.SIGSTOP)
        await asyncio.sleep(0.7)
        os.kill(worker, signal.SIGCONT)
        status = await agent.ended(spec.id)
    assert status.state is StageState.INVALID
    assert status.reason in ("ClientStarved", "ClientTooSlow")
    assert status.evidence.loop_lag_p99_s > 0.3
    assert "CPU" in status.message
    data = StageData.from_wire(await agent.client.get_samples(spec.id))
    assert (data.first_chunk_tokens[data.ok] > 1).any(), "some streams began while the client stood still"
    assert np.nanmin(data.tpot_s[data.ok]) > 0.99 * behaviour.gap_s


async def test_a_worker_that_dies_makes_the_stage_invalid_and_the_next_one_runs(agent):
    async with raw_server(Behaviour(first_token_s=30)) as server:
        await agent.client.put_stage(stage(server.port, id="first"))
        await agent.begun("first")
        os.kill(agent.workers()[0], signal.SIGKILL)
        status = await agent.ended("first", within_s=10)
        assert (status.state, status.reason) == (StageState.INVALID, "WorkerDied")
    async with raw_server() as server:
        status, _ = await agent.measure(stage(server.port, id="second"))
        assert status.state is StageState.DONE


async def test_an_agent_that_is_told_to_end_does_so_at_once_with_its_worker_and_is_not_complete(agent):
    async with raw_server(Behaviour(first_token_s=30)) as server:
        await agent.client.put_stage(stage(server.port, id="stage-1"))
        await agent.begun("stage-1")
        (worker,) = agent.workers()
        agent.process.terminate()
        async with asyncio.timeout(10):
            assert await agent.process.wait() == ENDED
        assert await agent.worker_is_gone(worker)
        with pytest.raises(AgentUnreachable, match="does not answer"):
            await agent.client.get_stage("stage-1")


async def test_a_worker_does_not_outlive_an_agent_that_is_killed(agent):
    async with raw_server(Behaviour(first_token_s=30)) as server:
        await agent.client.put_stage(stage(server.port, id="stage-1"))
        await agent.begun("stage-1")
        (worker,) = agent.workers()
        agent.process.kill()
        await agent.process.wait()
        assert await agent.worker_is_gone(worker)
