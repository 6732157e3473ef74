"""What the load agent does with a mounted trace and real prompts."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from kneekeeper.api.offered_load import Closed, Empirical, FromTrace, Replay, Uniform
from kneekeeper.api.sources import SourcesReport, SourceState
from kneekeeper.api.stage import PrefixSharing, PromptSource, StageState
from kneekeeper.load.sources import PROMPTS, TRACE
from tests.contract.agent_process import AgentProcess, agent_process, stage
from tests.contract.raw_server import raw_server

ANY = Empirical.model_validate({"bins": [{"low": 1, "high": 9, "weight": 1}]})
OF_TRACE = FromTrace(marginal=ANY, maximum=12)


async def read(agent: AgentProcess) -> SourcesReport:
    async with asyncio.timeout(30):
        while True:
            report = await agent.client.get_sources()
            if report.state is not SourceState.READING:
                return report
            await asyncio.sleep(0.02)


async def test_a_trace_is_replayed_with_its_own_lengths_at_the_asked_rate(tmp_path):
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 1000 * at, "input_length": 3 + at % 5, "output_length": 2 + at % 3} for at in range(40)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    async with agent_process(tmp_path, more={TRACE: str(trace)}) as agent, raw_server() as server:
        report = await read(agent)
        spec = stage(server.port, arrivals=Replay(rate=50), prompt_tokens=OF_TRACE, output_tokens=OF_TRACE)
        status, samples = await agent.measure(spec)
    assert report.trace is not None
    assert (report.trace.requests, report.trace.rate) == (40, 1.0)
    assert status.state is StageState.DONE, status.message
    assert sorted(samples.prompt_tokens) == sorted(3 + at % 5 for at in range(40))
    intended = np.sort(samples.intended_s)
    assert np.diff(intended) == pytest.approx(np.full(39, 0.02))


async def test_real_prompts_are_sent_as_they_are_to_the_endpoint_they_are_for(tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    chat = [{"role": "user", "content": "Wie geht's?"}]
    prompts.write_text(json.dumps({"text": "Once upon"}) + "\n" + json.dumps({"messages": chat}) + "\n", "utf-8")
    async with agent_process(tmp_path, more={PROMPTS: str(prompts)}) as agent, raw_server() as server:
        report = await read(agent)
        status, _ = await agent.measure(stage(server.port, prompts=PromptSource.MOUNTED))
        refused, _ = await agent.measure(stage(server.port, arrivals=Replay(rate=9)))
    assert report.prompts is not None
    assert report.prompts.prompts == 2
    assert status.state is StageState.DONE, status.message
    told = {(seen.path, str(seen.body.get("prompt", seen.body.get("messages")))) for seen in server.seen}
    assert told == {("/v1/completions", "Once upon"), ("/v1/chat/completions", str(chat))}
    salts = [seen.body["cache_salt"] for seen in server.seen]
    assert max(salts.count(salt) for salt in salts) <= 2  # each prompt once in a round
    assert refused.state is StageState.FAILED
    assert "declare it in spec.workload" in refused.message


async def test_users_think_before_their_next_request(tmp_path):
    async with agent_process(tmp_path) as agent, raw_server() as server:
        spec = stage(
            server.port,
            arrivals=Closed(users=8, think_time_s=0.2),
            limits={"min_requests": 60, "max_requests": 60, "max_duration_s": 30.0},
        )
        status, samples = await agent.measure(spec)
    assert status.state is StageState.DONE, status.message
    # 52 pauses of 0.2 s in the mean among 8 users: without them all would be over in a moment.
    assert max(samples.intended_s) > 0.8
    assert all(sent >= intended for sent, intended in zip(samples.sent_s, samples.intended_s, strict=True))


async def test_prompts_of_a_stage_begin_with_the_same_blocks_and_go_on_differently(tmp_path):
    async with agent_process(tmp_path) as agent, raw_server() as server:
        sharing = PrefixSharing(hit_share=0.5, block_tokens=4)
        await agent.measure(stage(server.port, prompt_tokens=Uniform(low=30, high=50), prefix=sharing))
    prompts = [seen.body["prompt"] for seen in server.seen]
    assert len({tuple(prompt[:12]) for prompt in prompts}) == 1
    assert len({tuple(prompt) for prompt in prompts}) == len(prompts)
