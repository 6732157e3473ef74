"""What an agent would measure on the world's engine.

Its law is another one than the fit's (a quadratic term), and its noise is seeded.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Closed, Open, Replay
from kneekeeper.api.stage import Evidence, Outcome, Samples, StageSpec, StageState, StageStatus
from kneekeeper.domain.lengths import mean_tokens as mean_of
from kneekeeper.domain.workload import draw_classes

STEP_BASE_S = 0.008
STEP_PER_SEQUENCE_S = 0.0004
STEP_QUADRATIC_S = 0.000002
PREFILL_PER_TOKEN_S = 0.00002
RECORDED_RATE = 2.0
"""Requests per second of the trace that the agent has mounted."""


def step_s(sequences: float) -> float:
    """The engine's step time at this batch size."""
    return STEP_BASE_S + STEP_PER_SEQUENCE_S * sequences + STEP_QUADRATIC_S * sequences**2


def _request_s(sequences: float, prompt: float, output: float) -> float:
    return output * step_s(sequences) + PREFILL_PER_TOKEN_S * prompt * (1 + sequences)


def capacity(setting: Setting, prompt: float, output: float) -> float:
    """Requests per second of a full batch."""
    return setting.max_num_seqs / _request_s(setting.max_num_seqs, prompt, output)


def _recorded(arrivals: Open | Replay) -> float:
    return RECORDED_RATE * arrivals.speed if isinstance(arrivals, Replay) and arrivals.speed is not None else 1.0


@functools.lru_cache(maxsize=64)
def answer(spec: StageSpec, setting: Setting) -> tuple[StageStatus, Samples]:
    """What an agent would measure on this engine."""
    rng = np.random.default_rng(int(hashlib.sha256(spec.id.encode()).hexdigest()[:8], 16))
    prompt, output = mean_of(spec.prompt_tokens), mean_of(spec.output_tokens)
    most = setting.max_num_seqs
    if isinstance(spec.arrivals, Closed):
        thinking_s = spec.arrivals.think_time_s
        alone_s = _request_s(1, prompt, output)
        inside = float(max(1, min(spec.arrivals.users * alone_s / (alone_s + thinking_s), most)))
        queued_s = 0.0 if thinking_s else (spec.arrivals.users - inside) * _request_s(inside, prompt, output) / inside
        rate, saturated = inside / _request_s(inside, prompt, output), False
    else:
        rate, peak = spec.arrivals.rate or _recorded(spec.arrivals), capacity(setting, prompt, output)
        saturated = rate >= peak
        levels = (float(n) for n in np.arange(0.1, most, 0.1))
        carrying = (n for n in levels if n / _request_s(n, prompt, output) >= rate)
        inside = float(most) if saturated else next(carrying, float(most))
        load = rate / peak
        queued_s = 20.0 if saturated else 0.05 * load**4 / (1 - load)
    # A test that is decided by its evidence ends with more requests than the fewest that pass without a miss.
    wanted = spec.limits.min_requests if not spec.sequential else max(1200, spec.min_pass_requests or 0)
    wanted = spec.limits.max_requests if spec.sequential and spec.classes else wanted  # the smallest class decides
    n = int(max(10, min(spec.limits.max_requests, wanted)))
    starts = np.arange(n) / rate
    noise = rng.lognormal(0, 0.05, n)
    # The users of a closed loop wait for each other, all about as long.
    waits = np.ones(n) if isinstance(spec.arrivals, Closed) else rng.exponential(1, n)
    first = starts + (queued_s * waits + PREFILL_PER_TOKEN_S * prompt + step_s(inside)) * noise
    tokens = np.full(n, max(1, round(output)))
    chunked = min(setting.max_num_batched_tokens, prompt) * PREFILL_PER_TOKEN_S
    per_token = (step_s(inside) + rate * prompt * PREFILL_PER_TOKEN_S * step_s(inside) + 0.1 * chunked) * noise
    last = first + (tokens - 1) * per_token
    elapsed = float(n / rate)
    samples = Samples(
        warmup_s=0.0,
        intended_s=starts.tolist(),
        sent_s=starts.tolist(),
        first_s=first.tolist(),
        last_s=last.tolist(),
        prompt_tokens=[round(prompt)] * n,
        output_tokens=tokens.tolist(),
        first_chunk_tokens=[1] * n,
        chunks=tokens.tolist(),
        outcome=[Outcome.OK] * n,
        request_class=draw_classes(spec, n).tolist(),
    )
    status = StageStatus(
        id=spec.id,
        state=StageState.SATURATED if saturated else StageState.DONE,
        elapsed_s=elapsed,
        warmup_s=0.0,
        planned=n,
        sent=n,
        succeeded=n,
        failed=0,
        timed_out=0,
        in_flight=0,
        requests_per_s=min(rate, capacity(setting, prompt, output)),
        output_tokens_per_s=rate * output,
        mean_concurrency=float(inside),
        evidence=Evidence(send_lag_p99_s=0.0, loop_lag_p99_s=0.0, cpu_share=0.1, achieved_over_offered=1.0),
    )
    return status, samples
