"""What an engine's counters say of one stage: how much its prefix cache served, how many draft tokens it accepted.

A stage in which either differs from what the traffic is like has measured another workload. Both counters only
grow (names since vLLM 0.9: `prefix_cache_queries`, `prefix_cache_hits` in tokens, `spec_decode_num_draft_tokens`,
`spec_decode_num_accepted_tokens`), so a stage is the difference between its end and its start.
"""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.tuning_run import EngineCounters
from kneekeeper.domain.observation import EngineMetrics

HIT_TOLERANCE = 0.03
"""Of the share of prompt tokens that the prefix cache serves."""

ACCEPTANCE_TOLERANCE = 0.10
"""Of the share of draft tokens that are accepted."""

_ROUNDING = 1e-9

_FEWEST_DRAFT_TOKENS = 200
"""On fewer, the share of accepted ones is chance."""


def counters_of(metrics: EngineMetrics) -> EngineCounters:
    """The counters as they are stored at the start of a stage."""
    values = (
        metrics.prefix_cache_queries_total,
        metrics.prefix_cache_hits_total,
        metrics.draft_tokens_total,
        metrics.accepted_tokens_total,
        metrics.generation_tokens_total,
    )
    queries, hits, drafts, accepted, generated = (None if value is None else round(value) for value in values)
    return EngineCounters(
        prefix_cache_queries=queries,
        prefix_cache_hits=hits,
        draft_tokens=drafts,
        accepted_tokens=accepted,
        generation_tokens=generated,
    )


@dataclass(frozen=True)
class StageCounts:
    """Shares over a stage, 0 to 1; None where nothing was counted."""

    hit_share: float | None
    draft_acceptance: float | None


def counts_of_stage(before: EngineCounters | None, after: EngineMetrics | None) -> StageCounts:
    """The shares between two readings; nothing is known without both, or where the engine began anew between."""
    if before is None or after is None:
        return StageCounts(None, None)
    now = counters_of(after)
    return StageCounts(
        _share(before.prefix_cache_queries, now.prefix_cache_queries, before.prefix_cache_hits, now.prefix_cache_hits),
        _share(
            before.draft_tokens, now.draft_tokens, before.accepted_tokens, now.accepted_tokens, _FEWEST_DRAFT_TOKENS
        ),
    )


def restart_fault(before: EngineCounters, after: EngineMetrics) -> str | None:
    """Why a stage is two halves of nothing, where a counter says so; None where all have grown."""
    now = counters_of(after)
    pairs = [(getattr(before, name), getattr(now, name)) for name in EngineCounters.model_fields]
    if all(earlier is None or later is None or later >= earlier for earlier, later in pairs):
        return None
    return "The engine began anew in mid-stage: its counters went back. Its log from before says why."


def _share(
    all_before: int | None, all_after: int | None, some_before: int | None, some_after: int | None, fewest: int = 1
) -> float | None:
    if all_before is None or all_after is None or some_before is None or some_after is None:
        return None
    total, part = all_after - all_before, some_after - some_before
    return part / total if total >= fewest and 0 <= part <= total else None


def hit_fault(expected: float, seen: float | None) -> str | None:
    """Why a stage whose prompts were built for the share `expected` does not count; None where it does."""
    if seen is None:
        if expected == 0:
            return None
        return (
            "The engine counts no prefix cache queries, so the declared share of hits cannot be shown. Run it with "
            "--enable-prefix-caching, or set spec.workload.prefixCacheHitPercent to 0."
        )
    if abs(seen - expected) <= HIT_TOLERANCE + _ROUNDING:
        return None
    why = (
        "Others send requests to this engine, or it keeps prompts of earlier stages."
        if seen > expected
        else "Its KV cache may be too small to keep the shared prefixes, or the prompts too short for whole blocks; "
        "declare what production's counters say in spec.workload.prefixCacheHitPercent."
    )
    return f"The prefix cache served {seen:.1%} of the prompt tokens, {expected:.1%} were wanted. {why}"


def acceptance_fault(production: float | None, seen: float | None) -> str | None:
    """Why a stage of an engine with speculative decoding does not count; None where it does, or nothing is known."""
    if production is None or seen is None or abs(seen - production) <= ACCEPTANCE_TOLERANCE + _ROUNDING:
        return None
    return (
        f"The engine accepted {seen:.1%} of the draft tokens, production {production:.1%}: the prompts are not like "
        "production's. Take those in spec.workload.prompts from production's own requests."
    )


def draft_acceptance(metrics: list[EngineMetrics]) -> float | None:
    """The share of draft tokens that engines have accepted since their starts, all together."""
    drafts = sum(each.draft_tokens_total or 0.0 for each in metrics)
    accepted = sum(each.accepted_tokens_total or 0.0 for each in metrics)
    return accepted / drafts if drafts >= _FEWEST_DRAFT_TOKENS and accepted <= drafts else None
