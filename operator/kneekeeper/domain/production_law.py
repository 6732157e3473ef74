"""The law of an engine from what production shows of it: counters over time, without a probe.

Over a window the sequence-weighted mean of the step time is B t / G, with B the mean of `num_requests_running`, t the
window and G its `generation_tokens`: each running request gets one token a step (Little's law of tokens). What the
steps held follows from `iteration_tokens_total`'s count, the steps. Windows of different load, and of different shares
of prompts, tell the coefficients apart; production that never varies tells hardly more than one number, and the fit
says so (`LawFit.told`). The API process does not show in these counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.domain.samples import Floats
from kneekeeper.domain.twin.fit import TERMS, LawFit, Prior, fit_law
from kneekeeper.domain.twin.law import Law

LEAST_STEPS = 50
"""Of a window that counts: the gauge of running requests is a mean of samples."""

ERROR = 0.05
"""Of a mean step time: the gauge is scraped every few seconds."""

_SHARE_OF_A_STEP = 0.5
"""Of the longest mean step: what a coefficient may explain before anything is known."""


@dataclass(frozen=True)
class CounterWindow:
    """Differences of one engine's counters over a window, and means of its gauges."""

    duration_s: float
    steps: int
    """`iteration_tokens_total_count`."""
    requests: int
    """`request_success`: each had one prompt."""
    generation_tokens: int
    prompt_tokens: int
    """Computed ones: those that a prefix cache served are not."""
    running: float
    """Mean of `num_requests_running`."""
    kv_tokens: float
    """Mean of `kv_cache_usage_perc` times the tokens that fit."""

    @property
    def step_s(self) -> float:
        """The mean duration of a step, as the tokens see it."""
        return self.running * self.duration_s / self.generation_tokens


def fit_production(windows: Sequence[CounterWindow]) -> LawFit | None:
    """The law that agrees best with the windows; None without one of enough steps."""
    known = [w for w in windows if w.steps >= LEAST_STEPS and w.generation_tokens > 0 and w.running > 0]
    if not known:
        return None
    return fit_law([_WindowEvidence(window) for window in known], _prior(known))


@dataclass(frozen=True)
class _WindowEvidence:
    window: CounterWindow

    @property
    def measured(self) -> Floats:
        return np.log([self.window.step_s])

    @property
    def error(self) -> Floats:
        return np.array([ERROR])

    def predict(self, law: Law) -> Floats:
        window = self.window
        prompts = window.requests / window.steps
        # Prompts fall on steps by chance.
        with_prompt = 1 - np.exp(-prompts)
        prefill_tokens = window.prompt_tokens / window.steps
        together = prefill_tokens**2 / with_prompt if with_prompt > 0 else 0.0
        step_s = (
            law.base_s
            + law.per_sequence_s * window.generation_tokens / window.steps
            + law.per_kv_token_s * window.kv_tokens
            + law.per_prefill_token_s * prefill_tokens
            + law.per_prefill_token_squared_s * together
            + law.prefill_step_s * with_prompt
        )
        return np.log([max(step_s, 1e-9)])

    def with_errors_of(self, law: Law) -> _WindowEvidence:
        return self


def _prior(windows: Sequence[CounterWindow]) -> Prior:
    longest_s, shortest_s = max(w.step_s for w in windows), min(w.step_s for w in windows)
    share_s = _SHARE_OF_A_STEP * longest_s
    sequences = max(w.generation_tokens / w.steps for w in windows)
    prefill = max(max(w.prompt_tokens / w.steps for w in windows), 1.0)
    width = {
        "base_s": shortest_s,
        "per_sequence_s": share_s / max(sequences, 1.0),
        "per_kv_token_s": share_s / max(max(w.kv_tokens for w in windows), 1.0),
        "per_prefill_token_s": share_s / prefill,
        "per_prefill_token_squared_s": share_s / prefill**2,
        "prefill_step_s": share_s,
    }
    return Prior(
        mean=np.array([shortest_s / 2 if term == "base_s" else 0.0 for term in TERMS], dtype=np.float64),
        width=np.array([width.get(term, 1e-9) for term in TERMS], dtype=np.float64),
    )
