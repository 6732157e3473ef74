"""What the figures show: an engine in the twin, loads, and what comes out.

The engine is Llama 3.1 8B on an A100 as `benchmarks.tuner.engines` has it from data sheets, without noise and drift.
The numbers are those of this model of an engine, not of a measurement; the shapes are what matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.tuner.engines import BLOCK_TOKENS, LLAMA8_A100
from kneekeeper.api.offered_load import LogNormal
from kneekeeper.api.stage import Slo
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.twin.simulate import Load, TwinLimits, TwinResult, simulate
from kneekeeper.domain.twin.surface import Surface
from kneekeeper.domain.twin.traffic import TwinTraffic

LAW = LLAMA8_A100.law
KV_TOKENS = LLAMA8_A100.kv_cache_tokens
SMALL_KV_TOKENS = 40_000
BUDGET_TOKENS = 2048
USERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SEED = 7

CHAT = TwinTraffic(LogNormal(mean=800, sigma=0.9, maximum=6000), LogNormal(mean=200, sigma=0.7, maximum=1200))
DOCUMENTS = TwinTraffic(LogNormal(mean=6000, sigma=0.5, maximum=20_000), LogNormal(mean=150, sigma=0.6, maximum=800))
WRITING = TwinTraffic(LogNormal(mean=150, sigma=0.6, maximum=1000), LogNormal(mean=700, sigma=0.6, maximum=3000))


def limits(sequences: int, tokens: int, kv_tokens: int = KV_TOKENS) -> TwinLimits:
    """An engine that was started with these."""
    return TwinLimits(sequences, tokens, kv_tokens // BLOCK_TOKENS, BLOCK_TOKENS)


def p99(values: Floats) -> float:
    """Of those that are known."""
    return float(np.nanquantile(values, 0.99))


@dataclass(frozen=True)
class Level:
    """A closed loop of `users`; times in seconds."""

    users: int
    requests_per_s: float
    p99_ttft_s: float
    p50_tpot_s: float
    p99_tpot_s: float
    preempted_share: float


def ramp(traffic: TwinTraffic, kv_tokens: int = KV_TOKENS, users: Sequence[int] = USERS) -> list[Level]:
    """Closed loops under limits that never bind but for the KV cache."""
    return [_level(traffic, count, limits(max(USERS), 8192, kv_tokens)) for count in users]


def _level(traffic: TwinTraffic, users: int, under: TwinLimits) -> Level:
    count = max(600, 12 * users)
    drawn = traffic.draw(count, SEED)
    rng = np.random.default_rng(SEED)
    outputs = drawn.output_tokens.copy()
    # First answers are cut at random: users that begin together would stay in step.
    outputs[:users] = np.ceil(outputs[:users] * (1 - rng.random(users))).astype(np.int64)
    result = simulate(Load(np.zeros(count), drawn.prompt_tokens, outputs, users=users), under, LAW)
    ended = np.sort(result.last_s)
    first, last = 2 * users, count - users
    steady = slice(first, last)
    rate = (last - first) / (ended[last - 1] - ended[first - 1])
    return Level(
        users,
        float(rate),
        p99(result.ttft_s[steady]),
        float(np.nanmedian(result.tpot_s[steady])),
        p99(result.tpot_s[steady]),
        float(np.mean(result.preemptions[steady] > 0)),
    )


def knee_of(levels: Sequence[Level]) -> float:
    """The concurrency at which 1% more users bring 0.2% more throughput: 4α/β of X(N) = N / (α + βN)."""
    users = np.array([level.users for level in levels], dtype=np.float64)
    rates = np.array([level.requests_per_s for level in levels])
    design = np.column_stack([rates / users, rates])  # α X/N + β X = 1
    (alpha, beta), *_ = np.linalg.lstsq(design, np.ones(users.size), rcond=None)
    return float(4 * alpha / beta)


@dataclass(frozen=True)
class Offered:
    """An open loop; times in seconds."""

    requests_per_s: float
    mean_ttft_s: float
    p99_ttft_s: float


def open_loops(under: TwinLimits, rates: Sequence[float]) -> list[Offered]:
    """Poisson arrivals of chat requests, the same ones at every rate."""
    drawn = CHAT.draw(20_000, SEED)
    load = Load(drawn.arrival_s, drawn.prompt_tokens, drawn.output_tokens)
    told = []
    for rate in rates:
        ttft_s = simulate(load.at_rate(rate), under, LAW).ttft_s[2000:]
        told.append(Offered(rate, float(np.mean(ttft_s)), p99(ttft_s)))
    return told


def closed_loops(under: TwinLimits, users: Sequence[int]) -> list[Level]:
    """The same engine, asked by users who wait for their answers."""
    return [_level(CHAT, count, under) for count in users]


def gaps(tokens: int, *, decoding: int = 32, prompt_tokens: int = 8000, arrives_s: float = 0.6) -> TwinResult:
    """`decoding` answers under way and a long prompt that comes in between; the log has each step."""
    arrival_s = np.append(np.zeros(decoding), arrives_s)
    prompts = np.append(np.full(decoding, 64), prompt_tokens).astype(np.int64)
    outputs = np.append(np.full(decoding, 150), 20).astype(np.int64)
    law = replace(LAW, api_request_s=0.0, api_prompt_token_s=0.0)
    return simulate(Load(arrival_s, prompts, outputs), limits(64, tokens), law, log_steps=400)


def capacities(traffic: TwinTraffic, slo: Slo, sequences: Sequence[int], budgets: Sequence[int]) -> list[list[float]]:
    """Requests/s inside the targets, `[budget][sequences]`."""
    surface = Surface.drawn(traffic, [slo], [LAW], 1500)
    return [[surface.highest_rate(limits(count, budget)) for count in sequences] for budget in budgets]
