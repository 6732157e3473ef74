"""What a setting would do at a rate, in closed form: P99 TTFT, TPOT and E2E from what a ladder measured.

The number of requests in the system is taken for a birth-death chain with arrivals at the rate and departures
at X(n), the ramp's throughput at n, levelled off where the sequences or the token budget end it (a
state-dependent M/M/1, as llm-d's workload variant autoscaler uses). Bursty arrivals flatten the chain's slope
as in the diffusion approximation: log-ratios times 2 / (ca² + cs²), ca² and cs² the squared coefficients of
variation of gaps and services (Kingman 1961; Allen & Cunneen). Services are taken for exponential while slots
are free (the number in an infinite server does not depend on more than their mean), and to vary as the output
lengths do once requests queue.

TTFT is the wait for a sequence slot, then for the prompts ahead in the token budget (M/G/1 workload with an
exponential tail), then the own prompt's steps. P99 TPOT at n is the closed loop's at n users, or the longest
step that the budget allows, whichever is less. All of it is rough near saturation; margins and certification
are there for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kneekeeper.api.model import Setting
from kneekeeper.api.stage import Lengths
from kneekeeper.domain.boundary import TailCurve
from kneekeeper.domain.lengths import quantile_tokens
from kneekeeper.domain.samples import Floats
from kneekeeper.domain.steptime import StepTime

BUSIEST = 0.97
"""Share of the throughput at full concurrency beyond which a queue takes longer to settle than any stage lasts."""

BUSY_QUANTILE = 0.9
"""The concurrency that a slow request sees: TPOT is a mean over its life, so not the very tail."""

_LONGEST_QUEUE = 20_000
_LEAST_SERVICE_CV2 = 0.2
"""Even equal outputs take times that differ, by the prompts that others bring."""
_TAIL = 0.01
_LENGTH_QUANTILES = (np.arange(100) + 0.5) / 100
_BISECTIONS = 20


@dataclass(frozen=True)
class Traffic:
    """The workload: lengths in tokens, gaps by their squared coefficient of variation (1 is Poisson)."""

    prompt_tokens: Lengths
    mean_prompt_tokens: float
    output_tokens: Lengths
    mean_output_tokens: float
    p99_output_tokens: int
    gap_cv2: float

    @cached_property
    def prompts(self) -> Floats:
        """Prompt lengths at evenly spaced quantiles."""
        drawn = [quantile_tokens(self.prompt_tokens, float(q)) for q in _LENGTH_QUANTILES]
        return np.array(drawn, dtype=np.float64)

    @cached_property
    def output_cv2(self) -> float:
        drawn = np.array([quantile_tokens(self.output_tokens, float(q)) for q in _LENGTH_QUANTILES], dtype=np.float64)
        return float(drawn.var() / drawn.mean() ** 2)

    @cached_property
    def prompt_cv2(self) -> float:
        return float(self.prompts.var() / self.prompts.mean() ** 2)


@dataclass(frozen=True)
class Prediction:
    """P99s in seconds; infinite where the rate cannot be carried."""

    p99_ttft_s: float
    p99_tpot_s: float
    p99_e2e_s: float


OVERLOADED = Prediction(np.inf, np.inf, np.inf)


@dataclass(frozen=True)
class Predictor:
    """A measured engine under a workload.

    `throughput` is X(n) in requests/s at n = 1, 2, 3, … users. `tail` is P99 TPOT over closed-loop users, read
    at `caution` times the concurrency. `overhead_s` is what TTFT has on top of the engine's steps. The scales
    are measured over predicted P99s of stages that were run already.
    """

    traffic: Traffic
    throughput: Floats
    tail: TailCurve
    step_time: StepTime
    overhead_s: float = 0.0
    caution: float = 1.0
    ttft_scale: float = 1.0
    tpot_scale: float = 1.0

    def with_scales(self, ttft_scale: float, tpot_scale: float) -> Predictor:
        return replace(self, ttft_scale=ttft_scale, tpot_scale=tpot_scale)

    def capacity(self, setting: Setting) -> float:
        """Requests/s of a full batch. Where each step needs more prefill than the budget leaves, fewer than
        max_num_seqs sequences decode at a time: n (1 + prompt/output) tokens a step in the mean."""
        per_sequence = 1 + self.traffic.mean_prompt_tokens / self.traffic.mean_output_tokens
        return self._throughput_at(min(setting.max_num_seqs, setting.max_num_batched_tokens / per_sequence))

    def _throughput_at(self, users: float) -> float:
        return float(np.interp(users, np.arange(self.throughput.size + 1), [0.0, *self.throughput]))

    def predict(self, setting: Setting, rate: float) -> Prediction:
        """P99s of an open loop at `rate` requests/s."""
        capacity = self.capacity(setting)
        if rate >= BUSIEST * capacity:
            return OVERLOADED
        slots = setting.max_num_seqs
        above = self._share_above(slots, capacity, rate)
        mean_users = float(above.sum())
        busy = min(slots, max(1, int(np.searchsorted(-above, -(1 - BUSY_QUANTILE)))))
        waiting = max(0, int(np.searchsorted(-above, -_TAIL)) - slots)
        prefill = self._prefill_delays(setting, rate, min(mean_users, slots))
        if prefill is None:
            return OVERLOADED
        mean_delay_s, p99_delay_s = prefill
        slot_wait_s = waiting / capacity
        ttft_s = self.overhead_s + max(p99_delay_s, slot_wait_s + mean_delay_s)
        ttft_s *= self.ttft_scale
        longest_step_s = self.step_time.step_s(slots, setting.max_num_batched_tokens - slots)
        tpot_s = self.tpot_scale * min(self.tail.at(busy * self.caution), longest_step_s)
        users = min(slots, max(1.0, mean_users))  # a long request sees the mean
        typical_tpot_s = users / (self._throughput_at(users) * self.traffic.mean_output_tokens)
        e2e_s = max(
            ttft_s + self.traffic.mean_output_tokens * typical_tpot_s,
            self.overhead_s + mean_delay_s + self.traffic.p99_output_tokens * typical_tpot_s,
        )
        return Prediction(ttft_s, tpot_s, e2e_s)

    def _share_above(self, slots: int, capacity: float, rate: float) -> Floats:
        """P(more than k requests in the system), k = 0, 1, …"""
        serving = 2 / (self.traffic.gap_cv2 + 1)
        queueing = 2 / (self.traffic.gap_cv2 + max(self.traffic.output_cv2, _LEAST_SERVICE_CV2))
        decay = queueing * np.log(capacity / rate)
        length = slots + min(_LONGEST_QUEUE, int(np.ceil(20 / decay)))
        served = np.full(length, capacity)
        exponent = np.full(length, queueing)
        exponent[:slots] = serving
        measured = self.throughput[:slots]
        served[: measured.size] = np.minimum(measured, capacity)
        weights = np.concatenate([[0.0], np.cumsum(exponent * np.log(rate / served))])
        shares = np.exp(weights - weights.max())
        shares /= shares.sum()
        return np.asarray(np.maximum(1 - np.cumsum(shares), 0.0), dtype=np.float64)

    def _prefill_delays(self, setting: Setting, rate: float, decoding: float) -> tuple[float, float] | None:
        """Mean and P99 of the time from admission to the first token; None: prompts come faster than the
        budget takes them."""
        room = setting.max_num_batched_tokens - decoding
        if room < 1:
            return None
        decode_s = self.step_time.step_s(decoding, 0)
        tokens_per_s = room / self.step_time.step_s(decoding, room)
        traffic, prompts = self.traffic, self.traffic.prompts
        load = rate * traffic.mean_prompt_tokens / tokens_per_s
        if load >= 1:
            return None
        ahead = traffic.mean_prompt_tokens * (traffic.gap_cv2 + traffic.prompt_cv2) / (2 * (1 - load))

        def share_beyond(tokens: float) -> float:
            behind = load * np.exp(-np.maximum(tokens - prompts, 0) / max(ahead, 1e-9))
            return float(np.mean(np.where(prompts > tokens, 1.0, behind)))

        low, high = 0.0, float(prompts[-1]) + ahead * np.log(1 / _TAIL) + 1
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if share_beyond(middle) > _TAIL else (low, middle)

        def seconds(tokens: float) -> float:
            steps = max(1.0, np.ceil(tokens / room))
            return float(steps * decode_s + self.step_time.per_prefill_token_s * tokens)

        # An arrival finds a step under way.
        under_way_s = decode_s / (1 - min(load, 0.9)) if decoding >= 1 else 0.0
        mean_s = seconds(traffic.mean_prompt_tokens + load * ahead) + under_way_s / 2
        return mean_s, seconds(high) + under_way_s
