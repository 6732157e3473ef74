"""How long the steps of the simulated engine take."""

from __future__ import annotations

import bisect
import math
import random

from kneekeeper.domain.step_plan import StepPlan
from kneekeeper.engine.hardware import StepTimeLaw


class StepTimer:
    """Draws step durations from a law. The same seed and the same plans give the same durations."""

    def __init__(self, law: StepTimeLaw, graph_sizes: tuple[int, ...], rng: random.Random) -> None:
        """`graph_sizes` ascend; empty when nothing is captured (`--enforce-eager`)."""
        self._law = law
        self._graph_sizes = graph_sizes
        self._rng = rng
        self._phase = rng.uniform(0.0, 2.0 * math.pi)

    def expected_ms(self, plan: StepPlan) -> float:
        """Milliseconds of the step before noise and drift."""
        law = self._law
        sequences = plan.sequences
        eager_ms = 0.0
        index = bisect.bisect_left(self._graph_sizes, plan.total_tokens)
        if index == len(self._graph_sizes):
            eager_ms = law.eager_ms
        elif law.pad_to_graph_sizes and plan.prefills == 0:
            sequences = self._graph_sizes[index]
        return (
            law.base_ms
            + eager_ms
            + law.per_sequence_ms * sequences
            + law.per_prefill_token_ms * plan.prefill_tokens
            + law.per_prefill_token_pair_ms * plan.prefill_token_pairs
            + law.per_kv_token_ms * plan.kv_tokens
        )

    def duration_s(self, plan: StepPlan, now_s: float) -> float:
        """Seconds of the step that starts at `now_s`, with noise and drift."""
        law = self._law
        factor = 1.0
        if law.noise:
            # Log-normal with mean one, so that noise does not make the engine slower on average.
            factor = math.exp(self._rng.gauss(-(law.noise**2) / 2, law.noise))
        if law.drift:
            factor *= 1.0 + law.drift * math.sin(2.0 * math.pi * now_s / law.drift_period_s + self._phase)
        return self.expected_ms(plan) * factor / 1000.0
