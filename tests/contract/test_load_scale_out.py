"""One stage over three agents, each a process of its own: offered once, merged exactly, void when one is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from kneekeeper.api.offered_load import Closed, Open
from kneekeeper.api.stage import Helpers, Outcome, StageState
from kneekeeper.domain.workload import draw_workload
from kneekeeper.load.client import AgentRefused
from kneekeeper.load.stage_runner import HELPER_LOST, MAX_START_SPREAD_S
from tests.contract.agent_process import AgentProcess, agent_process, stage
from tests.contract.raw_server import Behaviour, Fault, raw_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = Behaviour(gap_s=0.05)
MANY = {"min_requests": 5000, "max_requests": 5000, "max_duration_s": 60.0}


def address(agent: AgentProcess) -> str:
    return agent.url.removeprefix("http://")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agents(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[AgentProcess]]:
    async with AsyncExitStack() as running:
        starting = [agent_process(tmp_path_factory.mktemp("agent")) for _ in range(3)]
        yield [await running.enter_async_context(each) for each in starting]


@pytest_asyncio.fixture(loop_scope="module")
async def first(agents: list[AgentProcess]) -> AgentProcess:
    """The agent that stages are ordered from, with both others as its helpers."""
    await agents[0].client.put_helpers(Helpers(addresses=tuple(map(address, agents[1:]))))
    return agents[0]


async def idle(agents: list[AgentProcess]) -> bool:
    """Whether no agent has a worker any more, within ten seconds."""
    for _ in range(200):
        if not any(agent.workers() for agent in agents):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_an_open_loop_of_three_agents_is_the_stage_that_one_would_send(first, agents):
    async with raw_server() as server:
        limits = {"min_requests": 90, "max_requests": 90}
        spec = stage(server.port, agents=3, arrivals=Open(rate=60), limits=limits)
        status, samples = await first.measure(spec)
    assert (status.state, status.succeeded, status.failed) == (StageState.DONE, 90, 0)
    drawn = draw_workload(spec)
    assert sorted(samples.intended_s) == pytest.approx(drawn.intended_s.tolist(), abs=1e-6)
    assert len({str(truth.body["prompt"]) for truth in server.seen}) == 90, "no request is sent twice"
    assert await idle(agents)


async def test_agents_begin_together_and_their_times_are_those_of_one_stage(first):
    async with raw_server() as server:
        limits = {"min_requests": 90, "max_requests": 90}
        spec = stage(server.port, agents=3, arrivals=Open(rate=60), limits=limits)
        _, samples = await first.measure(spec)
    by_prompt = {str(truth.body["prompt"]): truth.received for truth in server.seen}
    assert len(by_prompt) == 90
    sent = sorted(samples.sent_s)
    received = sorted(by_prompt.values())
    origins = [at - own for at, own in zip(received, sent, strict=True)]
    assert max(origins) - min(origins) < MAX_START_SPREAD_S


async def test_the_users_of_a_closed_loop_are_parted_and_all_of_them_are_busy(first):
    async with raw_server(LONG) as server:
        limits = {"min_requests": 60, "max_requests": 600, "max_duration_s": 5.0}
        spec = stage(server.port, agents=3, arrivals=Closed(users=10), limits=limits)
        status, samples = await first.measure(spec)
        assert server.most_in_flight == 10
    assert (status.state, status.failed) == (StageState.DONE, 0)
    assert len(samples.outcome) == status.sent == len(server.seen)
    assert status.mean_concurrency <= 10


async def test_a_stage_for_more_agents_than_are_known_is_refused(agents):
    await agents[0].client.put_helpers(Helpers(addresses=(address(agents[1]),)))
    with pytest.raises(AgentRefused, match="name 1 more"):
        await agents[0].client.put_stage(stage(1, agents=3))


async def test_a_helper_that_cannot_be_reached_makes_the_stage_invalid_and_names_it(agents):
    await agents[0].client.put_helpers(Helpers(addresses=(address(agents[1]), "127.0.0.1:1")))
    async with raw_server() as server:
        await agents[0].client.put_stage(spec := stage(server.port, agents=3))
        status = await agents[0].ended(spec.id)
    assert (status.state, status.reason) == (StageState.INVALID, HELPER_LOST)
    assert "127.0.0.1:1 " in status.message
    assert await idle(agents)
    assert server.seen == []


async def test_a_helper_at_work_takes_no_second_share(first, agents):
    async with raw_server(LONG) as server:
        await agents[1].client.put_stage(own := stage(server.port, limits=MANY))
        await agents[1].begun(own.id)
        await first.client.put_stage(spec := stage(server.port, agents=3))
        status = await first.ended(spec.id)
        await agents[1].client.delete_stage(own.id)
        await agents[1].ended(own.id)
    assert (status.state, status.reason) == (StageState.INVALID, HELPER_LOST)
    assert "at work already" in status.message


async def test_cancelling_a_stage_ends_the_workers_of_all_agents(first, agents):
    async with raw_server(LONG) as server:
        await first.client.put_stage(spec := stage(server.port, agents=3, limits=MANY))
        await first.begun(spec.id, sent=4)
        assert all(agent.workers() for agent in agents)
        await first.client.delete_stage(spec.id)
        status = await first.ended(spec.id)
    assert status.state is StageState.CANCELLED
    assert await idle(agents)


async def test_a_target_that_only_fails_is_the_targets_fault(first):
    async with raw_server(Behaviour(fault=Fault.HTTP_500)) as server:
        status, samples = await first.measure(stage(server.port, agents=3))
    assert status.state is StageState.FAILED
    assert set(samples.outcome) == {Outcome.ERROR}


async def test_a_dead_helper_makes_the_stage_invalid_and_the_next_one_is_measured_with_its_successor(
    agents, tmp_path_factory
):
    async with raw_server(LONG) as server:
        async with agent_process(tmp_path_factory.mktemp("mortal")) as mortal:
            await agents[0].client.put_helpers(Helpers(addresses=(address(agents[1]), address(mortal))))
            await agents[0].client.put_stage(spec := stage(server.port, agents=3, limits=MANY))
            await agents[0].begun(spec.id, sent=4)
            os.kill(mortal.process.pid, signal.SIGKILL)
            status = await agents[0].ended(spec.id)
        assert (status.state, status.reason) == (StageState.INVALID, HELPER_LOST)
        assert address(mortal) in status.message
        assert await idle(agents)
        await agents[0].client.put_helpers(Helpers(addresses=tuple(map(address, agents[1:]))))
        status, _ = await agents[0].measure(stage(server.port, agents=3))
    assert status.state is StageState.DONE


async def test_a_dead_first_agent_ends_the_workers_of_its_helpers(agents, tmp_path_factory):
    async with raw_server(LONG) as server, agent_process(tmp_path_factory.mktemp("mortal")) as mortal:
        await mortal.client.put_helpers(Helpers(addresses=tuple(map(address, agents[1:]))))
        await mortal.client.put_stage(spec := stage(server.port, agents=3, limits=MANY))
        await mortal.begun(spec.id, sent=4)
        os.kill(mortal.process.pid, signal.SIGKILL)
        assert await idle(agents[1:])
