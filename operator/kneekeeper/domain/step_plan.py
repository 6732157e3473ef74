"""One step of the continuous-batching scheduler, as values: what is computed, and what it brought."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step computes, with the sums from which its duration follows."""

    tokens: dict[str, int]
    """Tokens to compute, by request id, in scheduling order."""

    decodes: int
    """Requests that compute one token to sample the next."""

    prefills: int
    """Requests that compute a chunk of their prompt, or recompute what a preemption took."""

    prefill_tokens: int
    """Tokens of all those chunks."""

    prefill_token_pairs: float
    """Sum over the chunks of their tokens times the mean context each of them attends to."""

    kv_tokens: int
    """Context tokens whose keys and values the step reads, over all scheduled requests."""

    admitted: tuple[str, ...]
    """Requests that went from waiting to running, resumed ones among them."""

    preempted: tuple[str, ...]
    """Requests that lost their blocks, in the order in which they lost them."""

    @property
    def total_tokens(self) -> int:
        return self.decodes + self.prefill_tokens

    @property
    def sequences(self) -> int:
        return self.decodes + self.prefills


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a completed step brought."""

    sampled: tuple[str, ...]
    """Requests that got one token more."""

    finished: tuple[str, ...]
    """Those among them for which it was the last."""
