"""What a real server counts of the load agent's prompts: their lengths, and what its prefix cache serves of them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from e2e.realvllm.environment import prepare
from e2e.realvllm.server import SERVED_MODEL_NAME, EngineSettings, LocalServer, running
from kneekeeper.api.offered_load import Closed, Fixed, Lengths, Uniform
from kneekeeper.api.stage import Limits, PrefixSharing, Samples, StageSpec, Target
from kneekeeper.domain.engine_counters import HIT_TOLERANCE, counters_of, counts_of_stage
from kneekeeper.domain.observation import EngineMetrics
from kneekeeper.load.stage_runner import StageRunner
from kneekeeper.observe.engine_metrics import engine_metrics, parse_samples

# A start takes half a minute on an idle machine, four times as long on a busy one.
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

REQUESTS = 60


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with running(prepare(), EngineSettings(max_num_seqs=16, max_num_batched_tokens=2048)) as started:
        yield started


@pytest.mark.parametrize("tokens", [1, 128, 777, 1999])
async def test_each_prompt_has_the_length_that_was_asked_for(server: LocalServer, tokens: int):
    samples = await _send(server, Fixed(value=tokens), None, seed=tokens, requests=12)
    assert samples.prompt_tokens == [tokens] * 12


@pytest.mark.parametrize("percent", [0, 50])
async def test_the_prefix_cache_serves_the_declared_share(server: LocalServer, percent: int):
    before = _metrics(server)
    assert before.block_tokens is not None
    assert before.prefix_cache_queries_total is not None
    sharing = PrefixSharing(hit_share=percent / 100, block_tokens=before.block_tokens) if percent else None
    samples = await _send(server, Uniform(low=400, high=1200), sharing, seed=9000 + percent, requests=REQUESTS)
    after = _metrics(server)
    assert after.prefix_cache_queries_total is not None
    assert after.prefix_cache_queries_total - before.prefix_cache_queries_total == sum(samples.prompt_tokens)
    seen = counts_of_stage(counters_of(before), after).hit_share
    assert seen == pytest.approx(percent / 100, abs=HIT_TOLERANCE if percent else 0)


async def _send(
    server: LocalServer, prompts: Lengths, sharing: PrefixSharing | None, *, seed: int, requests: int
) -> Samples:
    url = urlsplit(server.url)
    runner = StageRunner(
        StageSpec(
            id="stage",
            target=Target(host=url.hostname or "", port=url.port or 0, model=SERVED_MODEL_NAME),
            prompt_tokens=prompts,
            output_tokens=Fixed(value=4),
            arrivals=Closed(users=4),
            limits=Limits(min_requests=requests, max_requests=requests, max_duration_s=120.0),
            seed=seed,
            prefix=sharing,
        )
    )
    await runner.run()
    return runner.samples()


def _metrics(server: LocalServer) -> EngineMetrics:
    return engine_metrics(parse_samples(server.metrics_text()))
