"""A stage's samples as arrays, and the latencies that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kneekeeper.api.stage import Outcome, Samples, Slo

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class StageData:
    """One row per request in the order of intended send times; times are seconds from the stage's start.

    Latencies count from the intended send time, so that a late client cannot hide a wait
    (coordinated omission).
    """

    warmup_s: float
    intended_s: Floats
    first_s: Floats
    last_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    first_chunk_tokens: Ints
    ok: Bools
    request_class: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Index of each request's class; empty without a mix."""

    @classmethod
    def from_wire(cls, samples: Samples) -> StageData:
        """The samples of one stage.

        Raises ValueError when the lists differ in length: they are then not one stage's.
        """
        columns = (
            samples.intended_s,
            samples.first_s,
            samples.last_s,
            samples.prompt_tokens,
            samples.output_tokens,
            samples.first_chunk_tokens,
            samples.outcome,
            samples.request_class or samples.outcome,
        )
        if len({len(column) for column in columns}) > 1:
            raise ValueError("the columns of the samples differ in length; fetch them from the agent again")
        order = np.argsort(np.asarray(samples.intended_s, dtype=np.float64), kind="stable")
        return cls(
            warmup_s=samples.warmup_s,
            intended_s=np.asarray(samples.intended_s, dtype=np.float64)[order],
            first_s=np.asarray(samples.first_s, dtype=np.float64)[order],
            last_s=np.asarray(samples.last_s, dtype=np.float64)[order],
            prompt_tokens=np.asarray(samples.prompt_tokens, dtype=np.int64)[order],
            output_tokens=np.asarray(samples.output_tokens, dtype=np.int64)[order],
            first_chunk_tokens=np.asarray(samples.first_chunk_tokens, dtype=np.int64)[order],
            ok=np.asarray([outcome is Outcome.OK for outcome in samples.outcome], dtype=np.bool_)[order],
            request_class=np.asarray(samples.request_class or [0] * len(samples.outcome), dtype=np.int64)[order],
        )

    def __len__(self) -> int:
        return int(self.intended_s.size)

    @cached_property
    def ttft_s(self) -> Floats:
        """First token minus intended send time. Of a failed request: the time it took to fail."""
        return self.first_s - self.intended_s

    @cached_property
    def tpot_s(self) -> Floats:
        """Time per output token after those of the first chunk; NaN where no token came after it."""
        later_tokens = self.output_tokens - self.first_chunk_tokens
        return np.where(later_tokens > 0, (self.last_s - self.first_s) / np.maximum(later_tokens, 1), np.nan)

    @cached_property
    def e2e_s(self) -> Floats:
        """Last token minus intended send time."""
        return self.last_s - self.intended_s

    def after_warmup(self) -> StageData:
        """The requests that were meant to be sent once the stage was warm."""
        return self.only(self.intended_s >= self.warmup_s)

    def of_class(self, index: int) -> StageData:
        """The requests of one class of a mix."""
        return self.only(self.request_class == index)

    def only(self, keep: Bools) -> StageData:
        """The rows that are to be kept."""
        return StageData(
            warmup_s=self.warmup_s,
            intended_s=self.intended_s[keep],
            first_s=self.first_s[keep],
            last_s=self.last_s[keep],
            prompt_tokens=self.prompt_tokens[keep],
            output_tokens=self.output_tokens[keep],
            first_chunk_tokens=self.first_chunk_tokens[keep],
            ok=self.ok[keep],
            request_class=self.request_class[keep] if self.request_class.size else self.request_class,
        )

    def misses_of_mix(self, slos: Sequence[Slo]) -> Bools:
        """As `misses`, each request held to the SLO of its class; with one SLO all are held to it."""
        if len(slos) == 1:
            return self.misses(slos[0])
        return np.array(np.choose(self.request_class, [self.misses(slo) for slo in slos]), dtype=np.bool_)

    def misses(self, slo: Slo) -> Bools:
        """Per request, whether it failed, timed out or missed any target that is set: one joint event.

        A request of a single token has no TPOT and cannot miss it.
        """
        missed = ~self.ok
        if slo.ttft_s is not None:
            missed = missed | (self.ttft_s > slo.ttft_s)
        if slo.tpot_s is not None:
            missed = missed | (np.nan_to_num(self.tpot_s, nan=0.0) > slo.tpot_s)
        if slo.e2e_s is not None:
            missed = missed | (self.e2e_s > slo.e2e_s)
        return missed
