"""The law of an engine from what production shows of it: counters over time, without a probe.

Over a window the sequence-weighted mean of the step time is B t / G, with B the mean of `num_requests_running`, t the
window and G its `generation_tokens`: each running request gets one token a step (Little's law of tokens). Weighted so,
a step has B (1 + v) sequences, with v their squared coefficient of variation within the window. What the steps held
follows from `iteration_tokens_total`'s count, the steps. Windows of different load, and of different shares of prompts,
tell the coefficients apart; production that never varies tells hardly more than one number, and the fit says so
(`LawFit.told`). Ordinary traffic has the same share of prompts at every load: then it is the mean of
`request_prefill_time_seconds`, from being scheduled to the first token, that tells what a step with a prompt costs over
one without. The API process does not show in these counters.
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

PREFILL_ERROR = 0.1
"""Of a mean prefill time: other prompts of the same step are counted by their mean, and chunks as whole steps."""

FEW_PROMPTS = 0.25
"""A step. Where there are more, the long steps are those in which many prompts meet, and a mean tells them no more."""

_PAIR_PER_TOKEN = 1e-4
"""Of a prompt token's cost, that of each token it attends to. Counting operations (Kaplan et al. 2020, "Scaling Laws
for Neural Language Models", 2.1) it is 2 layers x width / parameters: 3e-5 for 8 billion parameters, 1.5e-4 for 125
million. Windows whose prompts have the same lengths cannot tell it."""

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
    running_sd: float = 0.0
    """Standard deviation of `num_requests_running` within the window."""
    prefill_s: float | None = None
    """Mean of `request_prefill_time_seconds`; None where it is not counted."""

    @property
    def mean_prompt_tokens(self) -> float:
        return self.prompt_tokens / max(self.requests, 1)

    @property
    def step_s(self) -> float:
        """The mean duration of a step, as the tokens see it."""
        return self.running * self.duration_s / self.generation_tokens

    @property
    def crowding(self) -> float:
        """How many times the mean number of sequences a token meets in its step."""
        return 1 + (self.running_sd / self.running) ** 2

    @property
    def lone_prefill_s(self) -> float | None:
        """The mean prefill time where prompts hardly meet others."""
        return self.prefill_s if self.requests <= FEW_PROMPTS * self.steps else None


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
        prefill_s = self.window.lone_prefill_s
        return np.log([self.window.step_s] if prefill_s is None else [self.window.step_s, prefill_s])

    @property
    def error(self) -> Floats:
        return np.array([ERROR] if self.window.lone_prefill_s is None else [ERROR, PREFILL_ERROR])

    def predict(self, law: Law) -> Floats:
        window = self.window
        prompts = window.requests / window.steps
        prefill_tokens = window.prompt_tokens / window.steps
        without_s = (
            law.base_s
            + law.per_sequence_s * window.crowding * window.generation_tokens / window.steps
            + law.per_kv_token_s * window.crowding * window.kv_tokens
        )
        each_s = law.per_prefill_token_s + law.per_prefill_pair_s * window.mean_prompt_tokens / 2
        # Prompts fall on steps by chance.
        step_s = without_s + each_s * prefill_tokens + law.prefill_step_s * (1 - np.exp(-prompts))
        if window.lone_prefill_s is None:
            return np.log([max(step_s, 1e-9)])
        # A prompt meets itself and, by chance again, as many others as any step has.
        own_s = without_s + each_s * (window.mean_prompt_tokens + prefill_tokens) + law.prefill_step_s
        return np.log([max(step_s, 1e-9), max(own_s, 1e-9)])

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
        "per_prefill_pair_s": _PAIR_PER_TOKEN * share_s / prefill,
        "prefill_step_s": share_s,
    }
    return Prior(
        mean=np.array([shortest_s / 2 if term == "base_s" else 0.0 for term in TERMS], dtype=np.float64),
        width=np.array([width.get(term, 1e-9) for term in TERMS], dtype=np.float64),
    )
