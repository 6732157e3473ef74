"""The settings that may be chosen: inside the bounds, on the grids, covered by what the ramp has shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.run_plan import SettingBounds
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.control import usable

SEQUENCE_STEP = 1.15
"""Neighbouring max_num_seqs differ at least by this factor: less would be lost in the noise of a stage."""

_FILLED = 0.8
"""Of the requests that the KV cache holds: a ramp with so many users has filled it, since lengths are drawn."""

_SHORT_REQUESTS = 4
"""Times as many as of mean ones may fill the KV cache: half of the requests of a long-tailed workload are far shorter,
and most of those that run are not at their end."""


@dataclass(frozen=True)
class Limit:
    """The largest value that may be chosen, and what sets it."""

    value: int
    bound_by: BoundBy


@dataclass(frozen=True)
class Candidates:
    """All settings that may be chosen, ascending, and what ends them above."""

    settings: tuple[Setting, ...]
    sequences: Limit
    tokens: Limit


def candidates(
    stages: Sequence[StageSummary],
    bounds: SettingBounds,
    ceiling: Setting,
    kv_cache_tokens: int | None,
    sequence_grid: Sequence[int],
    token_grid: Sequence[int],
    longest_prompt_tokens: int,
    most_sequences: int | None = None,
) -> Candidates:
    """All pairs of the grids inside the bounds, none beyond what the ramp covers, nor beyond `most_sequences`, the knee
    that a profile makes a hard cap.

    Never more sequences than were tried or the KV cache holds; no budget larger than the prefill that a step can have
    had. Where the bounds begin above all that, their lower end is the only one.
    """
    ramp = sorted(usable(stages, StageKind.RAMP), key=lambda stage: stage.users or 0)
    lowest, highest = bounds.lowest, bounds.highest
    sequences = _sequence_limit(ramp, highest, ceiling, kv_cache_tokens)
    if most_sequences is not None and most_sequences < sequences.value:
        sequences = Limit(most_sequences, BoundBy.KNEE)
    allowed = min(highest.max_num_batched_tokens, ceiling.max_num_batched_tokens)
    tokens = Limit(min(allowed, _largest_prefill(stages, ramp, longest_prompt_tokens)), BoundBy.BOUND)
    most = Setting(max_num_seqs=ceiling.max_num_seqs, max_num_batched_tokens=allowed)
    return pairs_within(lowest, sequences, tokens, sequence_grid, token_grid, most)


def pairs_within(
    lowest: Setting,
    sequences: Limit,
    tokens: Limit,
    sequence_grid: Sequence[int],
    token_grid: Sequence[int],
    most: Setting | None = None,
) -> Candidates:
    """All pairs of the grids from `lowest` to both limits; where a limit lies below it, `lowest` itself as long as it
    is not above `most`."""
    seqs = _thinned([n for n in sequence_grid if lowest.max_num_seqs <= n <= sequences.value])
    if not seqs and most is not None and lowest.max_num_seqs <= most.max_num_seqs:
        seqs = [lowest.max_num_seqs]
    budgets = [m for m in token_grid if lowest.max_num_batched_tokens <= m <= tokens.value]
    if not budgets and most is not None and lowest.max_num_batched_tokens <= most.max_num_batched_tokens:
        budgets = [lowest.max_num_batched_tokens]
    pairs = [Setting(max_num_seqs=n, max_num_batched_tokens=m) for n in seqs for m in budgets if m >= n]
    return Candidates(tuple(pairs), sequences, tokens)


def _sequence_limit(
    ramp: Sequence[StageSummary], highest: Setting, ceiling: Setting, kv_cache_tokens: int | None
) -> Limit:
    """What was tried; where the ramp ended at the KV cache, what the cache may hold of short requests: the twin counts
    its blocks, so it knows what more sequences do then."""
    top = ramp[-1]
    most, tried = min(highest.max_num_seqs, ceiling.max_num_seqs), top.users or 1
    prompt, output = top.prompt_tokens_mean, top.output_tokens_mean
    if kv_cache_tokens is None or tried < _FILLED * kv_cache_tokens / (prompt + output):
        return Limit(min(most, tried), BoundBy.BOUND)
    held = Limit(max(1, int(_SHORT_REQUESTS * kv_cache_tokens / (prompt + output))), BoundBy.KV_CACHE)
    return min(held, Limit(most, BoundBy.BOUND), key=lambda limit: limit.value)


def _largest_prefill(stages: Sequence[StageSummary], ramp: Sequence[StageSummary], longest_prompt_tokens: int) -> int:
    """Prompt tokens that one step has had: of the longest prompts, or of many users that arrive together."""
    alone = [stage.prompt_tokens_mean for stage in usable(stages, StageKind.PREFILL)]
    together = (ramp[-1].users or 1) * ramp[-1].prompt_tokens_mean
    return int(max([*alone, longest_prompt_tokens, together]))


def _thinned(grid: Sequence[int]) -> list[int]:
    """The grid without values that hardly differ; its largest value stays."""
    kept: list[int] = []
    for value in reversed(grid):
        if not kept or kept[-1] >= SEQUENCE_STEP * value:
            kept.append(value)
    return kept[::-1]
