"""How long a step of the twin takes, and what the API process costs.

The engine's part is

    T = a + b B + c KV + d P + d₂ P² + q pairs + e [P > 0] + g [no graph],   times noise and drift

with B sequences in the step (padded to a captured graph size where no prompt is computed), KV context tokens read,
P prompt tokens computed, `pairs` of a prompt token and a token it attends to. A term whose coefficient is 0 is not
there, so one kernel serves the fitted law as well as engines of another shape. The API process is one server that
takes requests and outputs in the order of time.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from kneekeeper.domain.samples import Floats, Ints

_NO_FLOATS: Floats = np.zeros(0, dtype=np.float64)


class PackedLaw(NamedTuple):
    """A law as the kernel reads it; see `Law`."""

    base_s: float
    per_sequence_s: float
    per_kv_token_s: float
    per_prefill_token_s: float
    per_prefill_token_squared_s: float
    per_prefill_pair_s: float
    prefill_step_s: float
    eager_s: float
    drift: float
    drift_period_s: float
    drift_phase: float
    api_request_s: float
    api_prompt_token_s: float
    api_step_s: float
    api_token_s: float
    overhead_s: float


@dataclass(frozen=True)
class Law:
    """All coefficients in seconds per what the name says; whatever is left out is not there."""

    base_s: float
    """a: any step."""

    per_sequence_s: float = 0.0
    """b: each sequence, decoding or not."""

    per_kv_token_s: float = 0.0
    """c: each token of context that the step's sequences hold."""

    per_prefill_token_s: float = 0.0
    """d: each prompt token computed."""

    per_prefill_token_squared_s: float = 0.0
    """d₂: the square of the step's prompt tokens."""

    per_prefill_pair_s: float = 0.0
    """q: each pair of a prompt token computed and a token it attends to."""

    prefill_step_s: float = 0.0
    """e: a step that computes any prompt, over one that does not."""

    eager_s: float = 0.0
    """g: a step of more tokens than the largest captured graph; every step where none is captured."""

    graph_sizes: tuple[int, ...] = ()
    """Ascending. Decode-only steps cost as many sequences as the next size; empty for no graphs, no padding."""

    noise: Floats = field(default_factory=lambda: _NO_FLOATS)
    """Factors on the durations of the steps in turn, over again at the end; empty for none."""

    drift: float = 0.0
    """Relative amplitude of a slow sine on the duration."""

    drift_period_s: float = 600.0
    drift_phase: float = 0.0

    api_request_s: float = 0.0
    """API process: each request before the scheduler sees it."""

    api_prompt_token_s: float = 0.0
    """API process: each prompt token, before the scheduler sees the request."""

    api_step_s: float = 0.0
    """API process: the outputs of each step, before any client sees them."""

    api_token_s: float = 0.0
    """API process: each output token, before any client sees the step's outputs."""

    overhead_s: float = 0.0
    """Between client and API process, there and back: on every first and last token."""

    def packed(self) -> PackedLaw:
        """The coefficients for the kernel."""
        return PackedLaw(
            float(self.base_s),
            float(self.per_sequence_s),
            float(self.per_kv_token_s),
            float(self.per_prefill_token_s),
            float(self.per_prefill_token_squared_s),
            float(self.per_prefill_pair_s),
            float(self.prefill_step_s),
            float(self.eager_s),
            float(self.drift),
            float(self.drift_period_s),
            float(self.drift_phase),
            float(self.api_request_s),
            float(self.api_prompt_token_s),
            float(self.api_step_s),
            float(self.api_token_s),
            float(self.overhead_s),
        )

    def padded(self) -> Ints:
        """For each number of tokens up to the largest graph, the size that is run."""
        sizes = self.graph_sizes
        padded = [sizes[bisect.bisect_left(sizes, n)] for n in range(sizes[-1] + 1)] if sizes else []
        return np.array(padded, dtype=np.int64)


def log_normal_noise(sigma: float, seed: int, count: int = 4093) -> Floats:
    """Factors of mean 1 whose logarithms have this standard deviation, for `Law.noise`."""
    return np.asarray(np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, count), dtype=np.float64)


@njit(nogil=True, cache=True)
def step_duration_s(
    law: Any,
    padded: Any,
    noise: Any,
    step: int,
    now_s: float,
    decodes: int,
    prefills: int,
    prefill_tokens: int,
    pairs: float,
    kv_tokens: int,
) -> float:
    """Seconds of the `step`-th step, which starts at `now_s`."""
    sequences = decodes + prefills
    duration_s = law.base_s
    tokens = decodes + prefill_tokens
    if tokens >= padded.size:
        duration_s += law.eager_s
    elif prefills == 0:
        sequences = padded[tokens]
    duration_s += law.per_sequence_s * sequences + law.per_kv_token_s * kv_tokens
    if prefills > 0:
        duration_s += (
            law.prefill_step_s
            + law.per_prefill_token_s * prefill_tokens
            + law.per_prefill_token_squared_s * prefill_tokens * prefill_tokens
            + law.per_prefill_pair_s * pairs
        )
    if noise.size > 0:
        duration_s *= noise[step % noise.size]
    if law.drift != 0.0:
        duration_s *= 1.0 + law.drift * np.sin(2.0 * np.pi * now_s / law.drift_period_s + law.drift_phase)
    return float(duration_s)
