"""Numbers that several rules need, derived once; None where a metric for it is missing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kneekeeper.domain.diagnose.observation import DiagnosisObservation
from kneekeeper.domain.diagnose.reading import Counter, Family, Gauge, Histogram
from kneekeeper.domain.diagnose.window import Series, Window
from kneekeeper.domain.knee import KNEE_ELASTICITY


@dataclass(frozen=True)
class Curve:
    """Mean step time T(B) = a + beta B under the present mix of tokens, so X(B) = B / T(B) tokens/s.

    Every output token brings p/o prompt tokens with it that some step computes: beta = b + d p/o
    (`domain/steptime.py`, solved for a steady engine).
    """

    base_s: float
    per_sequence_s: float

    def step_s(self, sequences: float) -> float:
        return self.base_s + self.per_sequence_s * sequences

    def tokens_per_s(self, sequences: float) -> float:
        return sequences / self.step_s(sequences)

    @property
    def knee(self) -> float:
        """Where 1% more sequences gain 0.2% more throughput; see `domain/knee.py`."""
        return (1 - KNEE_ELASTICITY) / KNEE_ELASTICITY * self.base_s / self.per_sequence_s

    @property
    def limit_tokens_per_s(self) -> float:
        return 1 / self.per_sequence_s


class WindowFacts:
    """Of one window."""

    def __init__(self, window: Window) -> None:
        self.window = window

    @cached_property
    def running(self) -> Series | None:
        return self.window.gauges.get(Gauge.RUNNING)

    @cached_property
    def waiting(self) -> Series | None:
        return self.window.gauges.get(Gauge.WAITING)

    @cached_property
    def kv_usage(self) -> Series | None:
        return self.window.gauges.get(Gauge.KV_USAGE)

    @cached_property
    def concurrency(self) -> Series | None:
        return self.running.plus(self.waiting) if self.running is not None and self.waiting is not None else None

    def histogram(self, family: Family) -> Histogram | None:
        return self.window.histograms.get(family)

    def mean(self, family: Family) -> float | None:
        histogram = self.histogram(family)
        return histogram.mean if histogram is not None else None

    def gained(self, counter: Counter) -> float | None:
        return self.window.gained.get(counter)

    @cached_property
    def finished(self) -> float | None:
        for family in (Family.E2E, Family.QUEUE, Family.OUTPUT_LENGTH, Family.TTFT):
            histogram = self.histogram(family)
            if histogram is not None:
                return histogram.count
        return None

    @cached_property
    def tokens_per_s(self) -> float | None:
        gained = self.gained(Counter.GENERATION_TOKENS)
        return gained / self.window.duration_s if gained is not None else None

    @cached_property
    def hit_share(self) -> float | None:
        """None where the engine does not cache prefixes or was asked for none."""
        queries, hits = self.gained(Counter.PREFIX_QUERIES), self.gained(Counter.PREFIX_HITS)
        return hits / queries if queries and hits is not None else None

    @cached_property
    def tpot_s(self) -> float | None:
        """Mean time between the tokens of a request, from whichever histogram there is."""
        tpot = self.mean(Family.TPOT)
        return tpot if tpot is not None else self.mean(Family.ITL)

    @cached_property
    def prompt_tokens(self) -> float | None:
        """Mean prompt of the requests that got their first token, or of those that ended."""
        gained, ttft = self.gained(Counter.PROMPT_TOKENS), self.histogram(Family.TTFT)
        if gained is not None and ttft is not None and ttft.count > 0:
            return gained / ttft.count
        return self.mean(Family.PROMPT_LENGTH)

    @cached_property
    def output_tokens(self) -> float | None:
        return self.mean(Family.OUTPUT_LENGTH)

    @cached_property
    def computed_per_output_token(self) -> float | None:
        """Prompt tokens that are computed for each output token."""
        prompts, outputs = self.gained(Counter.PROMPT_TOKENS), self.gained(Counter.GENERATION_TOKENS)
        if prompts is None or not outputs:
            return None
        return prompts * (1 - (self.hit_share or 0.0)) / outputs


class Facts(WindowFacts):
    """Of the present window, with what was measured before."""

    def __init__(self, obs: DiagnosisObservation) -> None:
        super().__init__(obs.now)
        self.obs = obs
        self.before = WindowFacts(obs.before) if obs.before is not None else None

    @cached_property
    def curve(self) -> Curve | None:
        """None without a run, and without the counters of tokens."""
        measured, per_output = self.obs.measured, self.computed_per_output_token
        if measured is None or per_output is None:
            return None
        step = measured.step
        return Curve(step.base_s, max(1e-9, step.per_sequence_s + step.per_prefill_token_s * per_output))

    @cached_property
    def full_batch(self) -> int:
        return self.obs.settings.max_num_seqs
