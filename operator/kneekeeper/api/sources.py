"""What the load agent tells of the files that it mounts: numbers, and never a word of a prompt."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from kneekeeper.api.offered_load import Empirical, WireModel


class SourceState(StrEnum):
    READING = "Reading"
    READY = "Ready"
    FAILED = "Failed"  # message names file, line and column


class TraceReport(WireModel):
    """What a trace holds. Times and rates are those of its own time axis."""

    requests: int = Field(ge=1)
    left_out: int = Field(ge=0, description="lines without a prompt or an answer token: requests that failed")
    duration_s: float = Field(ge=0)
    gap_variation: float = Field(ge=0, description="squared coefficient of variation of the gaps")
    prompt_tokens: Empirical
    output_tokens: Empirical

    @property
    def rate(self) -> float:
        """Mean requests per second; infinite where all came at once."""
        return (self.requests - 1) / self.duration_s if self.duration_s > 0 else float("inf")


class PromptsReport(WireModel):
    """What a file of prompts holds; never a word of them."""

    prompts: int = Field(ge=1)
    longest_bytes: int = Field(ge=1)


class SourcesReport(WireModel):
    """The agent's trace and prompts, as far as they are mounted."""

    state: SourceState
    message: str = ""
    trace: TraceReport | None = None
    prompts: PromptsReport | None = None
