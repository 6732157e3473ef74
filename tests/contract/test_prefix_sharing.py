"""Declared prefix sharing, from the load agent's prompts to the counters of a (simulated) engine."""

from __future__ import annotations

import httpx
import pytest

from kneekeeper.api.offered_load import LogNormal, Open
from kneekeeper.api.stage import PrefixSharing, StageState, Target
from kneekeeper.domain.engine_counters import counters_of, counts_of_stage, hit_fault
from kneekeeper.domain.observation import EngineMetrics
from kneekeeper.observe.engine_metrics import engine_metrics, parse_samples
from tests.contract.agent_process import agent_process, stage
from tests.contract.engine_process import FAST, Engine, running_engine

PROMPTS = LogNormal(mean=300, sigma=0.6, maximum=1500)


def metrics(engine: Engine) -> EngineMetrics:
    return engine_metrics(parse_samples(httpx.get(f"{engine.url}/metrics").text))


@pytest.mark.parametrize("percent", [0, 50])
async def test_an_engine_counts_the_declared_share_of_hits(tmp_path, percent):
    with running_engine(FAST, "tiny", "--max-num-seqs=64") as engine:
        async with agent_process(tmp_path) as agent:
            before = metrics(engine)
            assert before.block_tokens is not None
            share = percent / 100
            spec = stage(
                engine.port,
                target=Target(host="127.0.0.1", port=engine.port, model="tiny"),
                prompt_tokens=PROMPTS,
                arrivals=Open(rate=60),
                prefix=PrefixSharing(hit_share=share, block_tokens=before.block_tokens) if percent else None,
                limits={"min_requests": 120, "max_requests": 120, "max_duration_s": 30.0},
            )
            status, _ = await agent.measure(spec)
            seen = counts_of_stage(counters_of(before), metrics(engine)).hit_share
    assert status.state is StageState.DONE, status.message
    assert seen is not None
    assert hit_fault(share, seen) is None
    assert hit_fault(share + 0.1, seen) is not None
    if not percent:
        assert seen == 0
