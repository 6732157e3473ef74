"""Records of engines under a law of the twin, as Prometheus would keep a day of them."""

from __future__ import annotations

import numpy as np

from kneekeeper.domain.production_record import EngineRecord
from tests.unit.history_builders import history

BASE_S, PER_SEQUENCE_S, PER_PROMPT_TOKEN_S = 0.010, 0.0002, 2e-5
PROMPT_TOKENS, OUTPUT_TOKENS = 200.0, 60.0
KV_CACHE_TOKENS = 400_000


def record(
    running: np.ndarray,
    *,
    pod: str = "chat-0",
    rank: str = "0",
    slowness: float = 1.0,
    kv_cache_tokens: int | None = KV_CACHE_TOKENS,
) -> EngineRecord:
    """Of an engine that ran so many requests in each window, all decoding."""
    prompted = PER_PROMPT_TOKEN_S * PROMPT_TOKENS
    whole = history(
        running,
        base_s=slowness * BASE_S,
        slope_s=slowness * (PER_SEQUENCE_S + prompted / OUTPUT_TOKENS),
        pod=pod,
        rank=rank,
        longer=OUTPUT_TOKENS / 200.0,
        kv_share=(PROMPT_TOKENS + OUTPUT_TOKENS / 2) / KV_CACHE_TOKENS,
    )
    prompts_a_step = running / OUTPUT_TOKENS
    prefill_s = slowness * (BASE_S + PER_SEQUENCE_S * running + prompted * (1 + prompts_a_step))
    return EngineRecord(
        history=whole,
        steps_per_s=whole.gaps_per_s / running,
        prefill_s=prefill_s,
        hit_share=np.zeros(running.size),
        kv_cache_tokens=kv_cache_tokens,
    )
