"""How long a surface of the twin takes: 12 x 8 settings, the rate of each searched to 2%, on one core."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import LogNormal
from kneekeeper.api.stage import Slo
from kneekeeper.domain.twin import Law
from kneekeeper.domain.twin.surface import Surface
from kneekeeper.domain.twin.traffic import TwinTraffic

SEQUENCES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
BUDGETS = (512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
REQUESTS = 2000
"""At each rate that is tried."""

CHAT = TwinTraffic(
    prompt_tokens=LogNormal(mean=800, sigma=1.0, maximum=8000),
    output_tokens=LogNormal(mean=200, sigma=0.7, maximum=2000),
    kv_cache_tokens=400_000,
)
TARGETS = Slo(ttft_s=0.5, tpot_s=0.04)
LAW = Law(
    base_s=7e-3,
    per_sequence_s=3e-5,
    per_kv_token_s=4.6e-8,
    per_prefill_token_s=3.3e-5,
    per_prefill_token_squared_s=1e-9,
    prefill_step_s=1e-3,
)
"""A model of eight billion parameters on a large card, about."""


@dataclass(frozen=True)
class SurfaceTime:
    """CPU seconds of this process for the whole surface, after compilation, and the best rate on it."""

    cpu_s: float
    settings: int
    best: Setting
    best_requests_per_s: float


def measure() -> SurfaceTime:
    """Search the surface once; everything is compiled before the clock starts."""
    surface = Surface.drawn(CHAT, [TARGETS], [LAW], REQUESTS)
    settings = [Setting(max_num_seqs=n, max_num_batched_tokens=m) for n in SEQUENCES for m in BUDGETS]
    surface.highest_rate(CHAT.limits(settings[0]))
    start = time.process_time()
    rates = {setting: surface.highest_rate(CHAT.limits(setting)) for setting in settings}
    cpu_s = time.process_time() - start
    best = max(rates, key=lambda setting: rates[setting])
    return SurfaceTime(cpu_s, len(settings), best, rates[best])
