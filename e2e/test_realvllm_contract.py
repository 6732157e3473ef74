"""What this project believes about vLLM, asked of a real server."""

import json
import sys
from collections.abc import Iterator

import pytest

from e2e.realvllm import exposition, golden
from e2e.realvllm.environment import RealVllm, prepare
from e2e.realvllm.server import LocalServer, free_port, running, serving

# A start takes half a minute on an idle machine, four times as long on a busy one.
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def engine() -> RealVllm:
    return prepare()


@pytest.fixture(scope="module")
def real_server(engine: RealVllm) -> Iterator[LocalServer]:
    with running(engine, golden.GOLDEN_SETTINGS) as server:
        golden.send_sample_requests(server)
        yield server


@pytest.fixture(scope="module")
def simulated_server(engine: RealVllm) -> Iterator[LocalServer]:
    port = free_port()
    settings = golden.GOLDEN_SETTINGS.arguments(model=engine.model, port=port)
    command = [sys.executable, "-m", "kneekeeper.engine", "--host", "127.0.0.1", *settings]
    with serving(command, port=port, environment={"KNEEKEEPER_SIM": '{"startup_s": 0}'}) as server:
        golden.send_sample_requests(server)
        yield server


def test_the_golden_file_is_what_a_real_server_exposes(real_server: LocalServer):
    recorded = exposition.shape_of(golden.METRICS_GOLDEN.read_text(encoding="utf-8"))
    assert exposition.differences(recorded, exposition.shape_of(real_server.metrics_text())) == ()


def test_the_simulated_engine_exposes_what_a_real_server_does(real_server: LocalServer, simulated_server: LocalServer):
    real = exposition.shape_of(real_server.metrics_text())
    assert exposition.differences(real, exposition.shape_of(simulated_server.metrics_text())) == ()


@pytest.mark.parametrize("prompt_tokens", [1, 129, 1500])
def test_a_prompt_of_token_ids_is_counted_exactly(real_server: LocalServer, prompt_tokens: int):
    prompt = [1 + index % 250 for index in range(prompt_tokens)]
    answer = json.loads(golden.complete(real_server.url, prompt_token_ids=prompt, output_tokens=7))
    assert answer["usage"]["prompt_tokens"] == prompt_tokens
    assert answer["usage"]["completion_tokens"] == 7


def test_each_chunk_tells_how_many_tokens_have_come(real_server: LocalServer):
    *counts, final = [tokens for _, tokens in _chunks(real_server, output_tokens=24)]
    assert final == counts[-1] == 24
    # Mostly one token a chunk; a busy API process merges some, so chunks must not be counted as tokens.
    assert counts == sorted(set(counts))
    assert counts[0] == 1


def test_a_stream_ends_with_a_chunk_that_has_usage_and_no_choice(real_server: LocalServer):
    *choices, final = [number for number, _ in _chunks(real_server, output_tokens=3)]
    assert set(choices) == {1}
    assert final == 0


def _chunks(server: LocalServer, *, output_tokens: int) -> list[tuple[int, int]]:
    """(number of choices, completion tokens so far) of each chunk of one streamed answer."""
    lines = golden.stream(server.url, prompt_token_ids=[5, 6, 7], output_tokens=output_tokens).splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    parsed = [json.loads(item) for item in data[:-1]]
    return [(len(chunk["choices"]), chunk["usage"]["completion_tokens"]) for chunk in parsed]
