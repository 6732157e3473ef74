"""What a stage sends and when: lengths and arrival times, drawn once from the stage's seed.

Each quantity has a random stream of its own, so that two stages of one seed that differ in their rate alone
have the same lengths (common random numbers).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from kneekeeper.api.stage import Arrivals, Closed, Fixed, Lengths, LogNormal, Open, StageSpec, Uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

START_SPREAD_S = 1.0
"""The users of a closed loop start within this time at most…"""

START_SPREAD_PER_USER_S = 0.02
"""…and within this time each, so that a few users do not wait for nothing."""


class Stream(IntEnum):
    """The independent random streams of a stage."""

    PROMPT_LENGTHS = 0
    OUTPUT_LENGTHS = 1
    ARRIVALS = 2
    PROMPTS = 3


def generator(seed: int, stream: Stream, index: int = 0) -> np.random.Generator:
    """The random stream of a stage; `index` splits it further, one part a request."""
    return np.random.default_rng([seed, stream, index])


def draw_lengths(lengths: Lengths, count: int, rng: np.random.Generator) -> Ints:
    """`count` lengths in tokens, each at least 1.

    A log-normal of mean m has mu = ln m - sigma²/2. Draws are rounded and cut to [1, maximum], so their mean
    lies below m where the cut bites.
    """
    match lengths:
        case Fixed():
            return np.full(count, lengths.value, dtype=np.int64)
        case Uniform():
            return rng.integers(lengths.low, lengths.high, count, endpoint=True)
        case LogNormal():
            mu = np.log(lengths.mean) - lengths.sigma**2 / 2
            return np.clip(np.rint(rng.lognormal(mu, lengths.sigma, count)), 1, lengths.maximum).astype(np.int64)


def draw_arrivals(arrivals: Open, count: int, rng: np.random.Generator) -> Floats:
    """`count` send times in seconds from the stage's start, ascending.

    Gaps are Gamma with shape k = burstiness and mean 1/rate: their coefficient of variation is 1/√k
    (k = 1 is Poisson). Burstiness None gives constant gaps.
    """
    if arrivals.burstiness is None:
        gaps = np.full(count, 1 / arrivals.rate)
    else:
        gaps = rng.gamma(arrivals.burstiness, 1 / (arrivals.rate * arrivals.burstiness), count)
    return np.cumsum(gaps)


def gap_variation(arrivals: Arrivals) -> float:
    """The squared coefficient of variation of the gaps; 0 where they are constant or follow from answers."""
    if isinstance(arrivals, Closed) or arrivals.burstiness is None:
        return 0.0
    return 1 / arrivals.burstiness


@dataclass(frozen=True, eq=False)
class Workload:
    """The requests of a stage, in the order in which they are sent.

    `intended_s` are the send times of an open loop, or when the users of a closed loop start: its later
    requests follow from the answers.
    """

    prompt_tokens: Ints
    output_tokens: Ints
    intended_s: Floats

    def __len__(self) -> int:
        return int(self.prompt_tokens.size)


def draw_workload(spec: StageSpec) -> Workload:
    """All `max_requests` requests of the stage; the same for the same spec.

    Users of a closed loop who start together with requests of one length stay in step, and their prefills
    merge for the whole stage. So they start spread out, and the first request of each is cut to a random part
    of its length: a stage then begins in the middle of requests, as if it had been going on. These first
    requests all start before `START_SPREAD_S` and belong to the warm-up.
    """
    count = spec.limits.max_requests
    prompts = draw_lengths(spec.prompt_tokens, count, generator(spec.seed, Stream.PROMPT_LENGTHS))
    outputs = draw_lengths(spec.output_tokens, count, generator(spec.seed, Stream.OUTPUT_LENGTHS))
    rng = generator(spec.seed, Stream.ARRIVALS)
    if isinstance(spec.arrivals, Open):
        return Workload(prompts, outputs, draw_arrivals(spec.arrivals, count, rng))
    users = min(spec.arrivals.users, count)
    outputs[:users] = np.ceil(outputs[:users] * (1 - rng.random(users))).astype(np.int64)
    spread_s = min(START_SPREAD_S, users * START_SPREAD_PER_USER_S)
    return Workload(prompts, outputs, np.sort(rng.random(users)) * spread_s)


def draw_prompt(seed: int, index: int, tokens: int, low: int, high: int) -> Ints:
    """The token ids of request `index`, random from the first one on: no prefix cache can hold a part of it."""
    return generator(seed, Stream.PROMPTS, index).integers(low, high, tokens, endpoint=True)
