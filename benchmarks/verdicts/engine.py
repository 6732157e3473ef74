"""Engines with continuous batching, compiled, on which verdicts are tried.

They share nothing with the product's own twin, and their step times have a shape that its fit does not have:
batches padded to captured sizes, attention that grows with the square of the prompt, a roofline, slow wandering
of the machine's speed, noise and rare pauses. First come, first served: running sequences decode first, prompts
are prefilled in chunks from what is left of the token budget, and a request is admitted while a place and room
for all its tokens are free.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WANDER_S = 20.0
"""Time in which the machine's speed forgets where it was."""


class Shape(IntEnum):
    """The kind of law that an engine's step times follow."""

    PADDED = 0
    """A large accelerator: decode batches padded to captured sizes, mixed steps run without capture."""

    ROOFLINE = 1
    """A small one: a step takes the larger of the time to read memory and the time to compute."""


@dataclass(frozen=True)
class Engine:
    """An engine with its traffic. Lengths are log-normal, given by mean and sigma, cut at `longest` times the mean."""

    name: str
    shape: Shape
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_tokens: int
    prompt_mean: float
    prompt_sigma: float
    output_mean: float
    output_sigma: float
    longest: float = 10.0
    noise: float = 0.05
    """Coefficient of variation of a step, independent from step to step."""
    wander: float = 0.02
    """Standard deviation of the machine's speed, wandering over `WANDER_S`."""
    pauses_per_s: float = 0.02
    pause_s: float = 0.1
    """Mean of an exponential pause of the whole engine."""


LARGE = Engine("large", Shape.PADDED, 128, 2048, 400_000, 800, 1.0, 200, 0.7)
SMALL = Engine("small", Shape.ROOFLINE, 24, 1024, 24_000, 350, 0.6, 80, 0.9, noise=0.1, wander=0.03)
ENGINES = (LARGE, SMALL)

TAILED = Engine("tailed", Shape.ROOFLINE, 64, 2048, 120_000, 200, 1.0, 150, 1.0, noise=0.15, wander=0.04)
"""Longer tails and more wander than the others."""

HELD_OUT = (
    Engine("held out, wide", Shape.PADDED, 256, 4096, 900_000, 500, 1.2, 300, 0.9, noise=0.08, wander=0.03),
    Engine("held out, narrow", Shape.ROOFLINE, 12, 512, 40_000, 900, 0.8, 40, 1.1, noise=0.2, wander=0.05),
)
"""No part in the making of the rule: first tried when it was finished. Do not choose constants by them."""


@dataclass(frozen=True, eq=False)
class Served:
    """One row a request, in the order of arrival; seconds. `step_end_s` and `step_answers` are those of the
    engine's steps, in which `step_answers` requests got a token."""

    arrived_s: Floats
    first_s: Floats
    last_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    step_end_s: Floats
    step_answers: Ints

    @property
    def ttft_s(self) -> Floats:
        return self.first_s - self.arrived_s

    @property
    def tpot_s(self) -> Floats:
        """NaN for a request of one token."""
        gaps = self.output_tokens - 1
        return np.where(gaps > 0, (self.last_s - self.first_s) / np.maximum(gaps, 1), np.nan)


def draw_lengths(engine: Engine, requests: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Prompt and output lengths, each at least 1."""

    def draw(mean: float, sigma: float) -> Ints:
        drawn = rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, requests)
        return np.clip(np.rint(drawn), 1, engine.longest * mean).astype(np.int64)

    return draw(engine.prompt_mean, engine.prompt_sigma), draw(engine.output_mean, engine.output_sigma)


def serve(engine: Engine, arrived_s: Floats, seed: int, *, speed: float = 1.0, course: int = 1) -> Served:
    """Serve requests that arrive at `arrived_s`, all of them to their end.

    `speed` multiplies the speed of every step. `course` 0 leaves the steps out, which saves memory in long runs.
    """
    rng = np.random.default_rng(seed)
    prompts, outputs = draw_lengths(engine, arrived_s.size, rng)
    first, last, step_end, step_answers = _serve(
        arrived_s,
        prompts,
        outputs,
        int(engine.shape),
        engine.max_num_seqs,
        engine.max_num_batched_tokens,
        engine.kv_cache_tokens,
        engine.noise,
        engine.wander,
        engine.pauses_per_s,
        engine.pause_s,
        speed,
        int(rng.integers(2**31)),
        course,
    )
    return Served(arrived_s, first, last, prompts, outputs, step_end, step_answers)


def _compiled(function: Any) -> Any:
    return cast(Any, numba.njit(cache=True, nogil=True)(function))


@_compiled
def _padded(tokens: int) -> int:
    """The next captured batch size: 1, 2, 4, 8, then multiples of 8, above 64 multiples of 16."""
    if tokens <= 2:
        return tokens
    if tokens <= 4:
        return 4
    grid = 8 if tokens <= 64 else 16
    return (tokens + grid - 1) // grid * grid


@_compiled
def _step_s(shape: int, decoding: int, prefill: int, kv: int, attended: float) -> float:
    """Seconds of a step: `attended` is the sum over prefilled tokens of the tokens before them."""
    if shape == 0:
        if prefill == 0:
            return float(6.5e-3 + 5.5e-5 * _padded(decoding) + 3.0e-8 * kv)
        tokens = (decoding + prefill + 127) // 128 * 128
        return 9.5e-3 + 2.6e-5 * tokens + 3.0e-8 * kv + 4.0e-10 * attended
    tokens = (decoding + prefill + 15) // 16 * 16
    memory_s = 1.2e-2 + 9.0e-7 * kv
    compute_s = 1.5e-3 + 1.6e-4 * tokens + 1.2e-9 * attended
    return float(max(memory_s, compute_s) + 0.2 * min(memory_s, compute_s))


@_compiled
def _serve(
    arrived_s: Any,
    prompts: Any,
    outputs: Any,
    shape: int,
    max_seqs: int,
    budget: int,
    kv_room: int,
    noise: float,
    wander: float,
    pauses_per_s: float,
    pause_s: float,
    speed: float,
    seed: int,
    course: int,
) -> Any:
    np.random.seed(seed)
    count = arrived_s.size
    first, last = np.zeros(count), np.zeros(count)
    running = np.empty(max_seqs, np.int64)
    left = np.empty(max_seqs, np.int64)  # prompt tokens to prefill
    done = np.empty(max_seqs, np.int64)  # output tokens so far
    spread = np.sqrt(np.log1p(noise * noise))
    capacity = 4096 if course else 1
    step_end, step_answers = np.empty(capacity), np.empty(capacity, np.int64)
    steps, here, queued, arrived = 0, 0, 0, 0
    kv, reserved, drift, clock = 0, 0, 0.0, 0.0
    while queued < count or here > 0:
        while arrived < count and arrived_s[arrived] <= clock:
            arrived += 1
        if here == 0 and queued == arrived:
            clock = max(clock, arrived_s[arrived])
            continue
        decoding = 0
        for place in range(here):
            if left[place] == 0:
                decoding += 1
        room, prefill, attended = budget - decoding, 0, 0.0
        for place in range(here):
            if left[place] > 0 and room > 0:
                chunk = min(left[place], room)
                attended += chunk * (prompts[running[place]] - left[place] + 0.5 * chunk)
                left[place] -= chunk
                room -= chunk
                prefill += chunk
                done[place] = -1 if left[place] == 0 else -2
        while queued < arrived and here < max_seqs and room > 0:
            need = prompts[queued] + outputs[queued]
            if reserved + need > kv_room and here > 0:
                break
            chunk = min(prompts[queued], room)
            attended += 0.5 * chunk * chunk
            running[here], left[here] = queued, prompts[queued] - chunk
            done[here] = -1 if left[here] == 0 else -2
            reserved += need
            room -= chunk
            prefill += chunk
            queued += 1
            here += 1
        step_s = _step_s(shape, decoding, prefill, kv, attended) / speed
        step_s *= np.exp(spread * np.random.standard_normal() - 0.5 * spread * spread)
        if wander > 0.0:
            keep = np.exp(-step_s / 20.0)
            drift = keep * drift + wander * np.sqrt(1.0 - keep * keep) * np.random.standard_normal()
            step_s *= np.exp(drift)
        if np.random.random() < pauses_per_s * step_s:
            step_s += np.random.exponential(pause_s)
        clock += step_s
        kv += decoding + prefill
        stay, answers = 0, 0
        for place in range(here):
            request = running[place]
            if left[place] == 0:
                if done[place] == -1:  # the prompt ended in this step
                    first[request] = clock
                    done[place] = 1
                else:
                    done[place] += 1
                answers += 1
                if done[place] >= outputs[request]:
                    last[request] = clock
                    kv -= prompts[request] + outputs[request] - 1
                    reserved -= prompts[request] + outputs[request]
                    continue
            running[stay], left[stay], done[stay] = request, left[place], done[place]
            stay += 1
        here = stay
        if course:
            if steps == step_end.size:
                longer_end, longer_answers = np.empty(2 * steps), np.empty(2 * steps, np.int64)
                longer_end[:steps], longer_answers[:steps] = step_end, step_answers
                step_end, step_answers = longer_end, longer_answers
            step_end[steps], step_answers[steps] = clock, answers
            steps += 1
    return first, last, step_end[:steps], step_answers[:steps]
