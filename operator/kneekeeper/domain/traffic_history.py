"""What a target's metrics hold of its traffic over the last days: hour by hour, and its last hours minute by minute."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.domain.diagnose.reading import Histogram
from kneekeeper.domain.samples import Floats


@dataclass(frozen=True)
class TrafficHour:
    """All replicas together in one hour; a histogram is None where nothing was counted."""

    at_s: float
    """Unix time of the hour's end."""
    prompt_tokens: Histogram | None
    output_tokens: Histogram | None
    prefix_queries: float | None = None
    """Prompt tokens (blocks before vLLM 0.9) that were looked up; None where the engine does not count them."""
    prefix_hits: float | None = None

    @property
    def requests(self) -> float:
        """Finished ones."""
        return self.output_tokens.count if self.output_tokens is not None else 0.0


@dataclass(frozen=True, eq=False)
class FirstTokens:
    """How many requests of one replica had got their first token at each scrape of the last hours, oldest first."""

    at_s: Floats
    total: Floats
    """A counter: it falls only where the engine began anew."""


@dataclass(frozen=True, eq=False)
class TrafficHistory:
    """Oldest first."""

    hours: tuple[TrafficHour, ...]
    first_tokens: tuple[FirstTokens, ...] = ()
    """Of a few replicas."""
