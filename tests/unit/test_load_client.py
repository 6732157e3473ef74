from __future__ import annotations

import httpx
import pytest

from kneekeeper.api.stage import StageState
from kneekeeper.load.agent import AgentConfigError, read_secret
from kneekeeper.load.client import (
    AgentClient,
    AgentError,
    AgentRefused,
    AgentUnreachable,
    AnotherStageRuns,
    StageUnknown,
)
from kneekeeper.load.stage_runner import StageRunner
from tests.unit.test_load_evidence import spec


def answering(status: int, text: str) -> AgentClient:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer secret"
        return httpx.Response(status, text=text)

    return AgentClient("http://10.0.0.7:8080", "secret", httpx.MockTransport(answer))


async def failure(client: AgentClient) -> AgentError:
    with pytest.raises(AgentError) as caught:
        await client.get_stage("stage")
    assert "secret" not in str(caught.value)
    return caught.value


async def test_a_status_comes_as_it_was_sent():
    status = StageRunner(spec()).status()
    client = answering(200, status.model_dump_json())
    assert await client.get_stage("stage") == status
    assert status.state is StageState.RUNNING


async def test_refusals_carry_the_agents_words():
    error = await failure(answering(409, '{"message":"stage other is running"}'))
    assert type(error) is AgentRefused
    assert (error.status, error.message) == (409, "stage other is running")


async def test_a_refusal_because_of_another_stage_names_it():
    error = await failure(answering(409, '{"message":"stage other is running","running":"other"}'))
    assert isinstance(error, AnotherStageRuns)
    assert (error.status, error.running) == (409, "other")


async def test_a_stage_that_is_not_known_has_its_own_error():
    assert isinstance(await failure(answering(404, '{"message":"not known"}')), StageUnknown)


@pytest.mark.parametrize(
    ("status", "text"),
    [(200, "<html>"), (200, '{"id":"stage"}'), (503, "upstream"), (500, '{"message":"The agent failed"}')],
)
async def test_answers_that_no_agent_gives_mean_that_it_is_not_reachable(status, text):
    assert isinstance(await failure(answering(status, text)), AgentUnreachable)


async def test_a_refusal_without_words_is_told_by_its_status():
    error = await failure(answering(403, "<html>"))
    assert isinstance(error, AgentRefused)
    assert error.message == "Forbidden"


async def test_no_connection_means_not_reachable():
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("")

    error = await failure(AgentClient("http://10.0.0.7:8080", "secret", httpx.MockTransport(refuse)))
    assert isinstance(error, AgentUnreachable)
    assert "ConnectTimeout" in str(error)


def test_secrets_are_read_from_the_files_that_the_environment_names(tmp_path):
    (tmp_path / "token").write_text(" abc \n", encoding="ascii")
    assert read_secret({"FILE": str(tmp_path / "token")}, "FILE") == "abc"
    assert read_secret({}, "FILE") is None
    assert read_secret({"FILE": ""}, "FILE") is None


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"a\r\nx-injected: 1", "ü".encode(), b"\xff"])
def test_a_secret_that_is_not_one_line_of_ascii_is_refused_without_showing_it(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(AgentConfigError, match="FILE") as error:
        read_secret({"FILE": str(tmp_path / "token")}, "FILE")
    assert "lines" not in str(error.value)


def test_a_missing_secret_file_is_named(tmp_path):
    with pytest.raises(AgentConfigError, match="cannot be read"):
        read_secret({"FILE": str(tmp_path / "absent")}, "FILE")
