"""Every fault of an engine under a certification: the stage is Invalid or Failed, and never passed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import pytest_asyncio

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Fixed, Open
from kneekeeper.api.stage import StageState
from kneekeeper.api.tuning_run import StageKind, Verdict
from kneekeeper.domain.summary import summarise
from tests.contract.agent_process import AgentProcess, agent_process, stage
from tests.contract.engine_process import FAST, free_port, launch, running_engine
from tests.contract.raw_server import Behaviour, Fault, raw_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=2048)
RATE = 120.0

Server = Callable[[], AbstractAsyncContextManager[int]]
"""Serves on the port."""


def engine(*arguments: str, **hardware: Any) -> Server:
    """A simulated engine that is up."""

    @asynccontextmanager
    async def serve() -> AsyncIterator[int]:
        with running_engine(FAST | hardware, "serve", "tiny", "--max-num-seqs=64", *arguments) as running:
            yield running.port

    return serve


def raw(**behaviour: Any) -> Server:
    @asynccontextmanager
    async def serve() -> AsyncIterator[int]:
        async with raw_server(Behaviour(**behaviour)) as server:
            yield server.port

    return serve


@asynccontextmanager
async def starting() -> AsyncIterator[int]:
    """An engine that still loads its weights."""
    port = free_port()
    process = launch(FAST | {"startup_s": 60.0}, "serve", "tiny", "--host", "127.0.0.1", "--port", str(port))
    try:
        yield port
    finally:
        process.kill()
        process.communicate()


def fault(kind: str) -> dict[str, Any]:
    return {"fault": {"after_s": 1.0, "kind": kind}}


SMALL_CACHE = {
    "gpu": {"memory_gib": 8.0, "weights_gib": 6.0, "kv_bytes_per_token": 300_000, "sampler_bytes_per_sequence": 0}
}
"""Some hundred tokens: of many requests at once, most are thrown out again."""

VOID, MISSED = frozenset({Verdict.INVALID}), frozenset({Verdict.FAIL})
EITHER = VOID | MISSED
"""Whether all failed or only some of them is a matter of when."""


@dataclass(frozen=True)
class Case:
    """A server, and what the stage may come to."""

    server: Server
    verdicts: frozenset[Verdict]
    says: str = ""
    spec: dict[str, Any] = field(default_factory=dict)


CASES = {
    "crashes": Case(engine(**fault("Exit")), VOID),
    "dies, and answers 500": Case(engine(**fault("EngineDead")), VOID, "HTTP status 500"),
    "hangs, and its health is good": Case(engine(**fault("Hang")), EITHER, spec={"limits": {"request_timeout_s": 0.5}}),
    "starts slowly": Case(starting, VOID, "cannot connect"),
    "serves another model": Case(engine("--served-model-name=other"), VOID, "HTTP status 404"),
    "refuses what is beyond its queue": Case(raw(queue=3, first_token_s=0.05), EITHER),
    "refuses all, its queue being full": Case(raw(queue=0), VOID, "HTTP status 503"),
    "truncates some streams": Case(raw(fault=Fault.TRUNCATED, fault_every=20), MISSED, "more than 1%"),
    "truncates all streams": Case(raw(fault=Fault.TRUNCATED), VOID, "requests failed"),
    "ends answers early": Case(raw(answers_at_most=2), VOID, "ended before"),
    "restarts, and is slower then": Case(raw(restarts_after_s=1.0), VOID, "requests failed"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentProcess]:
    async with agent_process(tmp_path_factory.mktemp("agent")) as running:
        yield running


async def certified(agent: AgentProcess, port: int, **values: Any) -> tuple[StageState, Verdict | None, str]:
    """A certification as a run orders it, and as it is summed up."""
    values = {
        "arrivals": Open(rate=RATE),
        "output_tokens": Fixed(value=5),
        "sequential": True,
        "min_pass_requests": 300,
        **values,
        "limits": {"min_requests": 600, "max_requests": 2000, **values.get("limits", {})},
    }
    spec = stage(port, **values)
    status, samples = await agent.measure(spec)
    summary = summarise(spec, status, samples, name="certify-1", kind=StageKind.CERTIFY, setting=SETTING)
    return status.state, summary.verdict, summary.message


async def test_without_a_fault_the_same_stage_says_nothing_against_the_engine(agent):
    async with raw()() as port:
        state, verdict, _ = await certified(agent, port, limits={"max_requests": 600})
    assert state is StageState.DONE
    assert verdict not in EITHER


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_an_engine_with_a_fault_never_passes(agent, case: Case):
    async with case.server() as port:
        _, verdict, message = await certified(agent, port, **case.spec)
    assert verdict in case.verdicts, message
    assert case.says in message


async def test_a_hung_engine_says_that_it_is_well(agent):
    """So health is no evidence: what was answered is."""
    with running_engine(FAST | fault("Hang"), "serve", "tiny") as hung:
        await certified(agent, hung.port, limits={"request_timeout_s": 0.5})
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{hung.url}/health")).status_code == 200


async def test_an_engine_that_preempts_without_an_end_does_not_keep_up(agent):
    arguments = ("serve", "tiny", "--max-num-seqs=64", "--max-model-len=256")
    with running_engine(FAST | SMALL_CACHE, *arguments) as thrashing:
        spec = {"prompt_tokens": Fixed(value=50), "output_tokens": Fixed(value=100)}
        _, verdict, message = await certified(agent, thrashing.port, **spec)
        assert thrashing.sample("vllm:num_preemptions_total") > 10
    assert verdict is Verdict.FAIL, message
