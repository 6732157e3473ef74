"""A small discrete-event model of continuous batching, for tests of statistics and choices.

Running sequences decode first, then prompts are prefilled in chunks from what is left of the token budget;
a sequence is admitted while a place and KV room for its whole length are free. Its step-time law is given by
the test, and is meant to differ from the law that the code under test fits.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Arrivals, Closed, Lengths, Open
from kneekeeper.api.stage import Evidence, Outcome, Samples, StageState, StageStatus
from kneekeeper.domain.workload import draw_lengths

StepLaw = Callable[[int, int, int], float]
"""Seconds of a step with (decoding sequences, their KV tokens, prefilled tokens)."""


@dataclass(frozen=True)
class SmallServer:
    law: StepLaw
    setting: Setting
    kv_cache_tokens: int = 10**9
    step_noise: float = 0.03


def run_load(
    server: SmallServer,
    arrivals: Arrivals,
    prompt_lengths: Lengths,
    output_lengths: Lengths,
    *,
    requests: int,
    seed: int,
    warmup_share: float = 0.1,
    max_duration_s: float = float("inf"),
) -> tuple[StageStatus, Samples]:
    """Serve `requests` requests; what arrives later than `max_duration_s` is not sent."""
    rng = np.random.default_rng(seed)
    prompts = draw_lengths(prompt_lengths, requests, rng).tolist()
    outputs = draw_lengths(output_lengths, requests, rng).tolist()
    noise = (1 + server.step_noise * rng.standard_normal(4096)).clip(0.5).tolist()
    if isinstance(arrivals, Closed):
        intended = [0.0] * min(arrivals.users, requests)
        pending: deque[int] = deque(range(len(intended)))
        future: list[float] = []
    else:
        assert isinstance(arrivals, Open)  # it replays no traces
        shape = arrivals.burstiness
        gaps = (
            np.full(requests, 1 / arrivals.rate)
            if shape is None
            else rng.gamma(shape, 1 / (arrivals.rate * shape), requests)
        )
        future = np.cumsum(gaps).tolist()
        intended = []
        pending = deque()
    first = [0.0] * requests
    last = [0.0] * requests
    chunks: deque[list[int]] = deque()  # [request, prompt tokens left]
    decoding: list[tuple[int, int]] = []  # (step of its last token, request)
    clock, step, kv, reserved, busy = 0.0, 0, 0, 0, 0.0
    area = 0.0
    while True:
        while len(intended) < len(future) and future[len(intended)] <= min(clock, max_duration_s):
            pending.append(len(intended))
            intended.append(future[len(intended)])
        if not (pending or chunks or decoding):
            if len(intended) >= len(future) or future[len(intended)] > max_duration_s:
                break
            clock = future[len(intended)]
            continue
        decoders = len(decoding)
        budget = server.setting.max_num_batched_tokens - decoders
        while pending and budget > sum(left for _, left in chunks):
            size = prompts[pending[0]] + outputs[pending[0]]
            full = decoders + len(chunks) >= server.setting.max_num_seqs
            if full or (reserved + size > server.kv_cache_tokens and reserved):
                break
            chosen = pending.popleft()
            chunks.append([chosen, prompts[chosen]])
            reserved += size
        prefilled, ready = 0, []
        for chunk in list(chunks):
            take = min(chunk[1], budget - prefilled)
            if take <= 0:
                break
            chunk[1] -= take
            prefilled += take
            if chunk[1] == 0:
                ready.append(chunks.popleft()[0])
        duration = server.law(decoders, kv, prefilled) * noise[step & 4095]
        clock += duration
        area += duration * (decoders + len(chunks) + len(ready) + len(pending))
        busy += duration
        step += 1
        kv += decoders + prefilled
        for request in ready:
            first[request] = clock
            heapq.heappush(decoding, (step + outputs[request] - 1, request))
        while decoding and decoding[0][0] <= step:
            _, request = heapq.heappop(decoding)
            last[request] = clock
            kv -= prompts[request] + outputs[request] - 1
            reserved -= prompts[request] + outputs[request]
            if isinstance(arrivals, Closed) and len(intended) < requests and clock < max_duration_s:
                pending.append(len(intended))
                intended.append(clock)
    count = len(intended)
    warmup_s = float(np.quantile(intended, warmup_share)) if count else 0.0
    # A closed loop ends with ever fewer users: what counts is the time in which all of them were there.
    until = max(intended) if isinstance(arrivals, Closed) else clock
    done = [i for i in range(count) if warmup_s <= last[i] <= until]
    span = max(until - warmup_s, 1e-9)
    tokens = sum(
        outputs[i] * max(0.0, min(last[i], until) - max(first[i], warmup_s)) / max(last[i] - first[i], 1e-9)
        for i in range(count)
    )
    status = StageStatus(
        id="stage",
        state=StageState.DONE,
        elapsed_s=clock,
        warmup_s=warmup_s,
        planned=requests,
        sent=count,
        succeeded=count,
        failed=0,
        timed_out=0,
        in_flight=0,
        requests_per_s=len(done) / span,
        output_tokens_per_s=tokens / span,
        mean_concurrency=float(arrivals.users) if isinstance(arrivals, Closed) else area / max(clock, 1e-9),
        evidence=Evidence(send_lag_p99_s=0, loop_lag_p99_s=0, cpu_share=0.1, achieved_over_offered=1),
    )
    samples = Samples(
        warmup_s=warmup_s,
        intended_s=intended,
        sent_s=intended,
        first_s=first[:count],
        last_s=last[:count],
        prompt_tokens=prompts[:count],
        output_tokens=outputs[:count],
        first_chunk_tokens=[1] * count,
        chunks=outputs[:count],
        outcome=[Outcome.OK] * count,
    )
    return status, samples
