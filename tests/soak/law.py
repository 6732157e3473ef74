"""Engines whose images and models have speeds of their own: the law of `tests.unit.plan.engine_law`, in slower time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Closed, Fixed, Open, Replay
from kneekeeper.api.stage import Limits, Samples, StageSpec, StageState, StageStatus, Target
from kneekeeper.domain.samples import Floats
from tests.soak.users import Lengths
from tests.unit.plan.engine_law import answer

_REQUESTS = 1000
_RATE_STEP = 1.04
"""Rates this near are alike."""


def slowness(image: str, model: str) -> float:
    """What each step takes over the law's; that of an image and a model is always the same."""
    return _between(image, 0.85, 1.2) * _between(model, 0.8, 1.2)


def _between(name: str, low: float, high: float) -> float:
    part = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32
    return low + (high - low) * part


def slow_answer(spec: StageSpec, setting: Setting, slow: float) -> tuple[StageStatus, Samples]:
    """What an agent would measure on an engine that takes `slow` times as long for everything."""
    arrivals = spec.arrivals
    if isinstance(arrivals, Closed):
        arrivals = arrivals.model_copy(update={"think_time_s": arrivals.think_time_s / slow})
    elif isinstance(arrivals, Open) or arrivals.rate is not None:
        arrivals = arrivals.model_copy(update={"rate": (arrivals.rate or 0) * slow})
    assert not isinstance(arrivals, Replay), "no profile here has a trace"
    status, samples = answer(spec.model_copy(update={"arrivals": arrivals}), setting)
    times = ("intended_s", "sent_s", "first_s", "last_s")
    longer = {name: [slow * t for t in getattr(samples, name)] for name in times}
    told = {
        "elapsed_s": status.elapsed_s * slow,
        "requests_per_s": status.requests_per_s / slow,
        "output_tokens_per_s": status.output_tokens_per_s / slow,
    }
    return status.model_copy(update=told), samples.model_copy(update=longer)


@dataclass(frozen=True)
class Served:
    """What the requests of one replica take at one rate."""

    ttft_s: Floats
    """Ascending."""
    tpot_s: Floats
    """Ascending."""
    per_s: float
    concurrency: float
    overloaded: bool

    @cached_property
    def p99_ttft_s(self) -> float:
        return float(np.quantile(self.ttft_s, 0.99))

    @cached_property
    def p99_tpot_s(self) -> float:
        return float(np.quantile(self.tpot_s, 0.99))


def served(setting: Setting, slow: float, per_s: float, lengths: Lengths) -> Served:
    """Of a replica with this setting that so many requests a second come to."""
    step = round(float(np.log(max(per_s, 1e-3)) / np.log(_RATE_STEP)))
    return _served(setting, slow, step, lengths)


@lru_cache(maxsize=4096)
def _served(setting: Setting, slow: float, step: int, lengths: Lengths) -> Served:
    spec = StageSpec(
        id="production",
        target=Target(host="127.0.0.1", port=8000, model="m"),
        prompt_tokens=Fixed(value=lengths.prompt),
        output_tokens=Fixed(value=lengths.output),
        arrivals=Open(rate=_RATE_STEP**step),
        limits=Limits(min_requests=_REQUESTS, max_requests=_REQUESTS, max_duration_s=1e9),
        seed=0,
    )
    status, samples = slow_answer(spec, setting, slow)
    first, last, sent = (np.array(t) for t in (samples.first_s, samples.last_s, samples.sent_s))
    gaps = np.array(samples.output_tokens) - 1
    ttft, tpot = np.sort(first - sent), np.sort((last - first) / np.maximum(gaps, 1))
    overloaded = status.state is StageState.SATURATED
    return Served(ttft, tpot, status.requests_per_s, status.mean_concurrency, overloaded)
