"""The settings that may be chosen: inside the bounds, on the grids, covered by what the ramp has shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.tuning_run import SettingBounds, StageKind, StageSummary
from kneekeeper.domain.control import usable

SEQUENCE_STEP = 1.15
"""Neighbouring max_num_seqs differ at least by this factor: less would be lost in the noise of a stage."""


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
) -> Candidates:
    """All pairs of the grids inside the bounds, none beyond what the ramp covers.

    Never more sequences than were tried or the KV cache holds of mean requests; no budget larger than the prefill
    that a step can have had. Where the bounds begin above all that, their lower end is the only one.
    """
    ramp = sorted(usable(stages, StageKind.RAMP), key=lambda stage: stage.users or 0)
    lowest, highest = bounds.lowest, bounds.highest
    sequences = _sequence_limit(ramp, highest, ceiling, kv_cache_tokens)
    allowed = min(highest.max_num_batched_tokens, ceiling.max_num_batched_tokens)
    tokens = Limit(min(allowed, _largest_prefill(stages, ramp, longest_prompt_tokens)), BoundBy.BOUND)
    seqs = _thinned([n for n in sequence_grid if lowest.max_num_seqs <= n <= sequences.value])
    if not seqs and lowest.max_num_seqs <= ceiling.max_num_seqs:
        seqs = [lowest.max_num_seqs]
    budgets = [m for m in token_grid if lowest.max_num_batched_tokens <= m <= tokens.value]
    if not budgets and lowest.max_num_batched_tokens <= allowed:
        budgets = [lowest.max_num_batched_tokens]
    pairs = [Setting(max_num_seqs=n, max_num_batched_tokens=m) for n in seqs for m in budgets if m >= n]
    return Candidates(tuple(pairs), sequences, tokens)


def _sequence_limit(
    ramp: Sequence[StageSummary], highest: Setting, ceiling: Setting, kv_cache_tokens: int | None
) -> Limit:
    top = ramp[-1]
    limits = []
    if kv_cache_tokens is not None:
        mean = top.prompt_tokens_mean + top.output_tokens_mean
        limits.append(Limit(max(1, int(kv_cache_tokens / mean)), BoundBy.KV_CACHE))
    tried = top.users or 1
    limits.append(Limit(min(highest.max_num_seqs, ceiling.max_num_seqs, tried), BoundBy.BOUND))
    return min(limits, key=lambda limit: limit.value)


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
