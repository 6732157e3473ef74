"""Histories of engines whose step takes base + slope N seconds, as their metrics would tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kneekeeper.domain.passive import EngineHistory

WINDOW_S = 300.0
OUTPUT_TOKENS, PROMPT_TOKENS = 200.0, 600.0


def day(low: float, high: float, windows: int = 288) -> np.ndarray:
    """Concurrency over a day, from `low` at night to `high`."""
    hour = np.arange(windows) / windows * 24
    return low + (high - low) * (0.5 - 0.5 * np.cos(2 * np.pi * hour / 24))


def history(
    running: Sequence[float] | np.ndarray,
    base_s: float = 0.02,
    slope_s: float = 0.001,
    pod: str = "chat-a",
    rank: str = "0",
    noise: float = 0.02,
    slowness: float | Sequence[float] | np.ndarray = 1.0,
    longer: float = 1.0,
    kv_share: float = 0.0001,
    seed: int = 1,
) -> EngineHistory:
    """`longer` are the tokens of a request over the usual; `kv_share` what one takes of the KV cache."""
    loads = np.asarray(running, dtype=np.float64)
    rng = np.random.default_rng(seed)
    step_s = (base_s + slope_s * loads) * slowness * np.exp(rng.normal(0, noise, loads.size))
    tokens_per_s = loads / step_s
    requests_per_s = tokens_per_s / OUTPUT_TOKENS / longer
    return EngineHistory(
        pod=pod,
        rank=rank,
        window_s=WINDOW_S,
        at_s=WINDOW_S * (1 + np.arange(loads.size, dtype=np.float64)),
        decoding=loads,
        gaps_per_s=tokens_per_s,
        running=loads,
        running_sd=np.zeros(loads.size),
        waiting=np.zeros(loads.size),
        requests_per_s=requests_per_s,
        generated_per_s=tokens_per_s,
        prompted_per_s=requests_per_s * PROMPT_TOKENS * longer,
        kv_usage=np.minimum(1.0, loads * kv_share),
        preemptions_per_s=np.zeros(loads.size),
    )
