"""What the load agent measures, against servers that know the truth."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from kneekeeper.api.offered_load import Closed, Fixed, LogNormal, Open, Uniform
from kneekeeper.api.stage import Endpoint, Outcome, Samples, StageState, Target
from kneekeeper.domain.samples import StageData
from kneekeeper.domain.workload import draw_workload
from tests.contract.agent_process import PATIENT, AgentProcess, agent_process, stage
from tests.contract.engine_process import FAST, running_engine
from tests.contract.raw_server import Behaviour, Fault, raw_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentProcess]:
    async with agent_process(tmp_path_factory.mktemp("agent")) as running:
        yield running


def failures(samples: Samples) -> int:
    return sum(outcome is not Outcome.OK for outcome in samples.outcome)


async def test_requests_have_exactly_the_drawn_lengths_and_say_so(agent):
    async with raw_server() as server:
        spec = stage(
            server.port,
            prompt_tokens=LogNormal(mean=60, sigma=1.0, maximum=500),
            output_tokens=Uniform(low=1, high=9),
            target=Target(host="127.0.0.1", port=server.port, model="tiny", root_path="/api"),
        )
        status, samples = await agent.measure(spec)
    workload = draw_workload(spec)
    prompts = sorted(workload.prompt_tokens.tolist())
    assert status.state is StageState.DONE
    assert sorted(len(truth.body["prompt"]) for truth in server.seen) == sorted(samples.prompt_tokens) == prompts
    assert sorted(samples.output_tokens) == sorted(workload.output_tokens.tolist())
    assert {truth.path for truth in server.seen} == {"/api/v1/completions"}
    assert len({tuple(truth.body["prompt"]) for truth in server.seen if len(truth.body["prompt"]) > 4}) > 30
    for truth in server.seen:
        body = dict(truth.body)
        assert all(10 <= token <= 250 for token in body.pop("prompt"))
        assert body.pop("max_tokens") == body.pop("min_tokens")
        assert body == {
            "model": "tiny",
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }


async def test_stamps_agree_with_the_servers_own_clock(agent):
    async with raw_server(Behaviour(first_token_s=0.02)) as server:
        status, samples = await agent.measure(stage(server.port, arrivals=Open(rate=50)))
    truths = sorted(server.seen, key=lambda truth: truth.received)
    sent = np.sort(samples.sent_s)
    start = truths[0].received - sent[0]
    received = np.array([truth.received for truth in truths]) - start
    first_written = np.sort([truth.first_written - start for truth in truths])
    slack = status.evidence.loop_lag_p99_s + 0.5  # another process may hold the processor on a busy machine
    assert (np.abs(received - sent) < slack).all()
    assert (np.sort(samples.first_s) >= first_written - slack).all()
    assert np.median(np.sort(samples.first_s) - first_written) < 0.05


async def test_a_closed_loop_keeps_exactly_its_users_busy(agent):
    async with raw_server(Behaviour(first_token_s=0.02)) as server:
        status, samples = await agent.measure(stage(server.port, arrivals=Closed(users=6), limits={"max_requests": 90}))
    assert server.most_in_flight == 6
    assert len(server.seen) == status.sent == len(samples.sent_s)
    assert status.evidence.achieved_over_offered == 1.0
    assert 4.5 <= status.mean_concurrency <= 6.001
    starts = np.sort(samples.intended_s)[:6]
    assert np.unique(starts).size == 6, "users start out of step"


async def test_an_open_loop_sends_on_schedule_whatever_the_server_does(agent):
    async with raw_server(Behaviour(first_token_s=0.5)) as server:
        spec = stage(server.port, arrivals=Open(rate=100), limits={"max_requests": 150})
        status, samples = await agent.measure(spec)
    assert np.allclose(np.sort(samples.intended_s), draw_workload(spec).intended_s, atol=1e-6)
    assert (np.array(samples.sent_s) >= np.array(samples.intended_s)).all(), "never early"
    assert status.planned == status.sent == status.succeeded == len(server.seen) == 150
    assert server.most_in_flight > 20


async def test_a_stall_of_the_server_is_in_every_latency_that_it_touches(agent):
    """No coordinated omission: requests go on being sent, and each waits for the rest of the stall."""
    behaviour = Behaviour(stall_after_s=0.6, stall_s=2.0)
    async with raw_server(behaviour) as server:
        spec = stage(server.port, arrivals=Open(rate=60), limits={"max_requests": 240})
        _, samples = await agent.measure(spec)
        start = min(truth.received for truth in server.seen) - min(samples.sent_s)
        begins, ends = server.stall_begins - start, server.stall_ends - start
    intended, first = np.array(samples.intended_s), np.array(samples.first_s)
    during = (intended > begins + 0.1) & (intended < ends - 0.1)
    planned = draw_workload(spec).intended_s
    assert during.sum() == ((planned > begins + 0.1) & (planned < ends - 0.1)).sum() >= 20
    assert (first[during] >= ends - 0.02).all()
    assert np.quantile((first - intended)[during], 0.99) > 1.7, "those who came first waited for nearly all of it"
    assert np.quantile(first - intended, 0.99) > 1.7, "and so the stage says"


async def test_failed_requests_are_counted_rows_and_misses(agent):
    async with raw_server(Behaviour(fault=Fault.HTTP_500, fault_every=20)) as server:
        status, samples = await agent.measure(stage(server.port, arrivals=Open(rate=60), limits={"max_requests": 100}))
    failed = sum(truth.failed for truth in server.seen)
    assert failed == 5
    assert status.state is StageState.DONE
    assert (status.failed, status.succeeded) == (failed, 100 - failed)
    assert samples.outcome.count(Outcome.ERROR) == failed
    assert StageData.from_wire(samples).misses(PATIENT).sum() == failed


@pytest.mark.parametrize("fault", [Fault.TRUNCATED, Fault.RESET, Fault.GARBAGE, Fault.HALF_CLOSED])
async def test_broken_answers_are_errors_and_the_stage_goes_on(agent, fault):
    async with raw_server(Behaviour(fault=fault, fault_every=7)) as server:
        status, samples = await agent.measure(stage(server.port))
    assert status.state is StageState.DONE
    assert samples.outcome.count(Outcome.ERROR) == status.failed == sum(truth.failed for truth in server.seen) >= 5
    assert len(samples.outcome) == status.sent


@pytest.mark.parametrize("fault", [Fault.SILENT, Fault.DRIPPING])
async def test_requests_without_an_end_time_out_as_rows(agent, fault):
    async with raw_server(Behaviour(fault=fault, fault_every=10)) as server:
        status, samples = await agent.measure(stage(server.port, limits={"request_timeout_s": 0.4}))
    assert samples.outcome.count(Outcome.TIMEOUT) == status.timed_out >= sum(truth.failed for truth in server.seen) >= 1
    late = [
        last - intended
        for last, intended, outcome in zip(samples.last_s, samples.intended_s, samples.outcome, strict=True)
        if outcome is Outcome.TIMEOUT
    ]
    assert all(waited >= 0.4 for waited in late)


async def test_a_server_that_fails_every_request_fails_the_stage_soon(agent):
    async with raw_server(Behaviour(fault=Fault.HTTP_500)) as server:
        status, samples = await agent.measure(stage(server.port, limits={"max_requests": 100_000}))
    assert (status.state, status.reason) == (StageState.FAILED, "TargetFails")
    assert "HTTP status 500" in status.message
    assert failures(samples) == len(samples.outcome) >= 20


async def test_a_target_that_refuses_connections_fails_the_stage(agent):
    async with raw_server() as server:
        port = server.port
    status, samples = await agent.measure(stage(port))
    assert (status.state, status.reason) == (StageState.FAILED, "TargetUnreachable")
    assert samples.intended_s == []


async def test_merged_tokens_comments_and_split_bytes_change_no_count(agent):
    async with raw_server(Behaviour(tokens_per_chunk=4, comments=True, splits_bytes=True)) as server:
        status, samples = await agent.measure(stage(server.port, output_tokens=Fixed(value=11)))
    later = slice(4, None)  # the first request of each user is shortened
    assert status.failed == 0
    assert set(sorted(samples.output_tokens)[later]) == {11}
    assert set(sorted(samples.chunks)[later]) == {3}


async def test_without_usage_the_chunks_and_the_asked_length_are_counted(agent):
    async with raw_server(Behaviour(tells_usage=False)) as server:
        _, samples = await agent.measure(stage(server.port))
    assert samples.output_tokens == samples.chunks
    assert set(samples.prompt_tokens) == {8}


async def test_a_chat_endpoint_gets_text_and_its_role_chunk_is_no_token(agent):
    target = {"host": "127.0.0.1", "model": "tiny", "endpoint": Endpoint.CHAT}
    async with raw_server(Behaviour(tells_usage=False)) as server:
        _, samples = await agent.measure(stage(server.port, target=Target(port=server.port, **target)))
    assert failures(samples) == 0
    assert max(samples.output_tokens) == 5
    assert {truth.path for truth in server.seen} == {"/v1/chat/completions"}
    assert all(len(truth.body["messages"][0]["content"].split()) == 8 for truth in server.seen)


async def test_requests_of_one_token_have_no_gaps(agent):
    async with raw_server() as server:
        status, samples = await agent.measure(stage(server.port, output_tokens=Fixed(value=1)))
    assert status.state is StageState.DONE
    assert samples.first_s == samples.last_s
    assert np.isnan(StageData.from_wire(samples).tpot_s).all()


async def test_a_steady_stage_ends_once_it_has_enough(agent):
    async with raw_server(Behaviour(first_token_s=0.01)) as server:
        status, samples = await agent.measure(
            stage(server.port, limits={"max_requests": 100_000, "min_token_gaps": 50})
        )
    assert (status.state, status.reason) == (StageState.DONE, "Steady")
    data = StageData.from_wire(samples).after_warmup()
    assert len(data) >= 10
    assert 0 < status.warmup_s < status.elapsed_s
    starts = np.sort(samples.intended_s)[:4]
    assert starts.max() < status.warmup_s, "the shortened first requests belong to the warm-up"
    assert status.in_flight == 0


async def test_a_growing_backlog_ends_the_stage_as_saturated(agent):
    async with raw_server(Behaviour(first_token_s=0.05, at_once=1)) as server:
        spec = stage(server.port, arrivals=Open(rate=100), output_tokens=Fixed(value=1), limits={"max_requests": 5000})
        status, samples = await agent.measure(spec)
    assert (status.state, status.reason) == (StageState.SATURATED, "BacklogGrows")
    assert samples.outcome.count(Outcome.ABORTED) == status.in_flight > 100
    assert len(samples.outcome) == status.sent


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (Behaviour(), "fewer than 1%"),
        (Behaviour(fault=Fault.HTTP_500, fault_every=10), "more than 1%"),
    ],
    ids=["pass", "fail"],
)
async def test_a_certification_ends_when_its_test_decides(agent, behaviour, words):
    async with raw_server(behaviour) as server:
        spec = stage(
            server.port,
            arrivals=Open(rate=150),
            output_tokens=Fixed(value=2),
            sequential=True,
            min_pass_requests=400,
            limits={"min_requests": 3000, "max_requests": 3000},
        )
        status, samples = await agent.measure(spec)
    assert (status.state, status.reason) == (StageState.DONE, "TestDecided")
    assert words in status.message
    assert len(samples.outcome) < 3000


@pytest.mark.parametrize("arrivals", [Closed(users=8), Open(rate=30)], ids=["closed", "open"])
async def test_a_simulated_engine_confirms_every_length_and_request(agent, arrivals):
    with running_engine(FAST, "serve", "tiny", "--max-num-seqs", "8") as engine:
        spec = stage(
            engine.port,
            arrivals=arrivals,
            prompt_tokens=LogNormal(mean=60, sigma=1.0, maximum=500),
            output_tokens=Uniform(low=1, high=30),
        )
        status, samples = await agent.measure(spec)
        finished = engine.sample("vllm:request_success_total", finished_reason="length")
        prompt_tokens = engine.sample("vllm:prompt_tokens_total")
        generated = engine.sample("vllm:generation_tokens_total")
    workload = draw_workload(spec)
    assert status.state is StageState.DONE
    assert status.succeeded == len(workload) == finished
    assert sum(samples.prompt_tokens) == workload.prompt_tokens.sum() == prompt_tokens
    assert sum(samples.output_tokens) == workload.output_tokens.sum() == generated
    assert sorted(samples.output_tokens) == sorted(workload.output_tokens.tolist())
