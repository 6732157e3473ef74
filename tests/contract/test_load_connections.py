"""How the load agent reaches a target: HTTPS with its own certificates, IPv6, and an API key that nobody reads."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kneekeeper.api.offered_load import Open
from kneekeeper.api.stage import StageState, Target, Tls
from tests.contract.agent_process import AgentProcess, agent_process, stage
from tests.contract.certificates import Certificate, self_signed
from tests.contract.raw_server import Behaviour, raw_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER_NAME = "engine.serving.svc"
API_KEY = "sk-the-engines-own-key"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentProcess]:
    async with agent_process(tmp_path_factory.mktemp("agent"), API_KEY) as running:
        yield running


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return self_signed(tmp_path_factory.mktemp("certificate"), SERVER_NAME)


def https(port: int, **tls: str) -> Target:
    return Target(host="127.0.0.1", port=port, model="tiny", tls=Tls(**tls))


async def test_a_stage_runs_over_https_with_keep_alive_and_split_records(agent, certificate):
    async with raw_server(Behaviour(splits_bytes=True, comments=True), tls=certificate.server) as server:
        target = https(server.port, server_name=SERVER_NAME, ca_file=str(certificate.file))
        status, samples = await agent.measure(stage(server.port, target=target))
    assert (status.state, status.failed, status.succeeded) == (StageState.DONE, 0, 40)
    assert max(samples.output_tokens) == 5
    assert server.connections < 40, "connections are used again"
    assert {truth.authorization for truth in server.seen} == {f"Bearer {API_KEY}"}


async def test_an_open_loop_has_its_https_connections_before_it_begins(agent, certificate):
    async with raw_server(tls=certificate.server) as server:
        target = https(server.port, server_name=SERVER_NAME, ca_file=str(certificate.file))
        status, _ = await agent.measure(stage(server.port, target=target, arrivals=Open(rate=40)))
    assert (status.state, status.failed) == (StageState.DONE, 0)


@pytest.mark.parametrize(
    ("server_name", "trusted", "words"),
    [
        (SERVER_NAME, "", "certificate verify failed"),
        ("another.name", "own", "certificate verify failed"),
        ("", "own", "certificate verify failed"),
        (SERVER_NAME, "missing", "certificates to trust cannot be read"),
    ],
    ids=["unknown authority", "another name", "no name for an address", "no bundle"],
)
async def test_a_server_that_cannot_prove_who_it_is_gets_no_request(agent, certificate, server_name, trusted, words):
    ca_file = {"own": str(certificate.file), "missing": "/does/not/exist", "": ""}[trusted]
    async with raw_server(tls=certificate.server) as server:
        target = https(server.port, server_name=server_name, ca_file=ca_file)
        await agent.client.put_stage(spec := stage(server.port, target=target))
        status = await agent.ended(spec.id)
    assert (status.state, status.reason) == (StageState.FAILED, "TargetUnreachable")
    assert words in status.message
    assert API_KEY not in status.message
    assert server.seen == []


async def test_a_target_that_speaks_no_tls_is_unreachable_over_https(agent, certificate):
    async with raw_server() as server:
        target = https(server.port, server_name=SERVER_NAME, ca_file=str(certificate.file))
        await agent.client.put_stage(spec := stage(server.port, target=target))
        status = await agent.ended(spec.id)
    assert (status.state, status.reason) == (StageState.FAILED, "TargetUnreachable")


async def test_a_stage_runs_over_ipv6(agent):
    async with raw_server(address="::1") as server:
        target = Target(host="::1", port=server.port, model="tiny")
        status, _ = await agent.measure(stage(server.port, target=target))
    assert (status.state, status.failed, status.succeeded) == (StageState.DONE, 0, 40)
