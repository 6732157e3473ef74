"""A guarded stage on a simulated engine that users share: it counts only without them, and leaves at once when they
come, with no operator to tell it so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from kneekeeper.api.offered_load import Closed, Fixed, Open, Uniform
from kneekeeper.api.stage import METRICS_UNREADABLE, USERS_SERVED, WINDOW_CLOSED, Guard, Outcome, StageSpec, StageState
from tests.contract.agent_process import AgentProcess, agent_process, stage
from tests.contract.engine_process import FAST, Engine, running_engine
from tests.contract.raw_server import raw_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG: dict[str, Any] = {"min_requests": 4000, "max_requests": 4000, "max_duration_s": 60.0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentProcess]:
    async with agent_process(tmp_path_factory.mktemp("agent")) as running:
        yield running


def guarded(engine: Engine | int, *, for_s: float = 600.0, **values: Any) -> StageSpec:
    port = engine if isinstance(engine, int) else engine.port
    return stage(port, guard=Guard(until_s=time.time() + for_s), **values)


async def ask(engine: Engine, tokens: int) -> httpx.Response:
    """As a user does."""
    body = {"model": "tiny", "prompt": [11, 12, 13], "max_tokens": tokens, "ignore_eos": True}
    async with httpx.AsyncClient(timeout=60.0) as http:
        return await http.post(f"{engine.url}/v1/completions", json=body)


@pytest.mark.parametrize("arrivals", [Closed(users=8), Open(rate=30)], ids=["closed", "open"])
async def test_a_stage_alone_on_the_engine_counts(agent, arrivals):
    with running_engine(FAST, "serve", "tiny", "--max-num-seqs", "8") as engine:
        spec = guarded(engine, arrivals=arrivals, output_tokens=Uniform(low=1, high=30))
        for _ in range(2):  # counters of an engine that has served before
            status, samples = await agent.measure(spec)
            assert (status.state, status.reason) != (StageState.INVALID, USERS_SERVED), status.message
            assert status.state is StageState.DONE
            assert set(samples.outcome) == {Outcome.OK}
            spec = spec.model_copy(update={"id": f"{spec.id}-again", "seed": spec.seed + 1})


async def test_nothing_is_sent_while_a_user_is_served(agent):
    with running_engine(FAST, "serve", "tiny", "--max-num-seqs", "8") as engine:
        user = asyncio.create_task(ask(engine, 2000))
        await asyncio.to_thread(engine.wait_for, "vllm:num_requests_running", 1.0)
        status, samples = await agent.measure(guarded(engine))
        assert (status.state, status.reason) == (StageState.INVALID, USERS_SERVED)
        assert status.sent == 0
        assert samples.outcome == []
        assert (await user).status_code == 200


@pytest.mark.parametrize("tokens", [2, 1500], ids=["short", "long"])
async def test_a_user_that_comes_ends_the_load_at_once_and_is_answered(agent, tokens):
    with running_engine(FAST, "serve", "tiny", "--max-num-seqs", "4") as engine:
        spec = guarded(engine, arrivals=Closed(users=12), output_tokens=Fixed(value=40), limits=LONG)
        await agent.client.put_stage(spec)
        await agent.begun(spec.id, sent=40)
        user = asyncio.create_task(ask(engine, tokens))
        status = await agent.ended(spec.id)
        assert (status.state, status.reason) == (StageState.INVALID, USERS_SERVED), status.message
        assert "Users sent" in status.message
        assert (await user).status_code == 200
        assert status.sent < LONG["max_requests"]
        await asyncio.to_thread(engine.wait_for, "vllm:num_requests_waiting", 0.0)


async def test_the_load_ends_when_the_window_closes(agent):
    with running_engine(FAST, "serve", "tiny", "--max-num-seqs", "8") as engine:
        status, _ = await agent.measure(guarded(engine, for_s=4.0, limits=LONG))
        assert (status.state, status.reason) == (StageState.INVALID, WINDOW_CLOSED)
        assert status.sent < LONG["max_requests"]
        late = guarded(engine, for_s=0.001)
        status, _ = await agent.measure(late)
        assert (status.reason, status.sent) == (WINDOW_CLOSED, 0)


async def test_an_engine_that_does_not_tell_gets_no_load(agent):
    async with raw_server() as server:
        status, _ = await agent.measure(guarded(server.port))
        assert (status.state, status.reason, status.sent) == (StageState.INVALID, METRICS_UNREADABLE, 0)
        assert not [truth for truth in server.seen if "completions" in truth.path]


async def test_an_engine_that_dies_under_the_load_is_left_soon(agent):
    with running_engine(FAST, "serve", "tiny", "--max-num-seqs", "8") as engine:
        spec = guarded(engine, limits=LONG)
        await agent.client.put_stage(spec)
        await agent.begun(spec.id, sent=20)
        engine.process.kill()
        status = await agent.ended(spec.id, within_s=30.0)
        assert status.state in (StageState.INVALID, StageState.FAILED)


async def test_a_stage_of_several_agents_cannot_be_guarded():
    with pytest.raises(ValueError, match="guard"):
        guarded(8000, agents=2)
