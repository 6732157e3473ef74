"""Who sends what: open loops with Poisson or bursty gaps, closed loops, long prompts among short ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from benchmarks.diagnosis.replica import SimulatedTime

_BLOCK_TOKENS = 16
_LONGEST_TOKENS = 12_000
"""Prompt and answer together, where nothing shorter is said."""


class Send(Protocol):
    def __call__(self, prompt: int, output: int, cached: int, then: Callable[[], None] | None = None) -> None: ...


@dataclass(frozen=True)
class Traffic:
    """An open loop of `rate`, or a closed loop of `users`. Lengths are log-normal."""

    prompt_tokens: float
    output_tokens: float
    rate: float = 0.0
    """Requests/s of the open loop."""
    users: int = 0
    """Of the closed loop, without pauses."""
    prompt_sigma: float = 0.5
    output_sigma: float = 0.5
    burst_size: float = 1.0
    """Requests that arrive at once, on average (geometric)."""
    hit_share: float = 0.0
    """Of each prompt that the prefix cache has, in whole blocks."""
    long_share: float = 0.0
    """Of requests that carry a long prompt."""
    long_tokens: int = 0
    longest_tokens: int = _LONGEST_TOKENS
    """Prompt and answer together: the engine's max_model_len."""


def start(traffic: Traffic, send: Send, time: SimulatedTime, until_s: float, draw: random.Random) -> None:
    """Schedule the load; nothing begins after `until_s`."""

    def length(mean: float, sigma: float) -> int:
        drawn = mean * math.exp(draw.gauss(-(sigma**2) / 2, sigma)) if sigma else mean
        return min(traffic.longest_tokens // 2, max(1, round(drawn)))

    def request(then: Callable[[], None] | None = None) -> None:
        prompt = length(traffic.prompt_tokens, traffic.prompt_sigma)
        if traffic.long_share and draw.random() < traffic.long_share:
            prompt = traffic.long_tokens
        cached = int(traffic.hit_share * (prompt - 1)) // _BLOCK_TOKENS * _BLOCK_TOKENS
        send(prompt, length(traffic.output_tokens, traffic.output_sigma), cached, then)

    def user() -> None:
        if time.now_s < until_s:
            request(user)

    def arrivals() -> None:
        if time.now_s >= until_s:
            return
        request()
        while traffic.burst_size > 1 and draw.random() > 1 / traffic.burst_size:
            request()
        time.call_later(draw.expovariate(traffic.rate / traffic.burst_size), arrivals)

    for _ in range(traffic.users):
        time.call_later(draw.uniform(0, 2.0), user)
    if traffic.rate:
        time.call_later(draw.expovariate(traffic.rate / traffic.burst_size), arrivals)
