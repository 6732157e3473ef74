"""Which limit keeps a choice from a higher rate: the one without which the twin would carry more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.stage import Slo
from kneekeeper.domain.candidates import Candidates
from kneekeeper.domain.twin.surface import BUSIEST, Surface

GAIN = 0.05
"""A limit binds when the rate would be higher by this share without it."""

_FARTHER = 2
"""A bound is relaxed by this factor."""


def bound_by(surface: Surface, chosen: Setting, rate: float, allowed: Candidates) -> BoundBy:
    """What binds at `rate`, the highest that `chosen` holds on this surface.

    Relaxed one at a time, in the order in which users can do something about them: KV cache, bounds, TPOT, TTFT, E2E
    (alone, then with TTFT, since waiting drives both). Knee where none of them helps: more concurrency would gain
    little throughput.
    """
    beyond = (1 + GAIN) * rate
    near = [setting for setting in allowed.settings if _is_near(setting, chosen)]
    # A neighbour that was given up for fewer sequences may carry a little more as it is.
    while _any_holds(surface, near, beyond):
        beyond *= 1 + GAIN
    ample = replace(surface, traffic=replace(surface.traffic, kv_cache_tokens=None))
    if surface.traffic.kv_cache_tokens is not None and _any_holds(ample, near, beyond):
        return BoundBy.KV_CACHE
    more_sequences = chosen.max_num_seqs * _FARTHER
    if _at_the_end(chosen.max_num_seqs, [s.max_num_seqs for s in allowed.settings]):
        larger = [
            Setting(max_num_seqs=more_sequences, max_num_batched_tokens=max(s.max_num_batched_tokens, more_sequences))
            for s in near
        ]
        if _any_holds(ample, larger, beyond):
            return allowed.sequences.bound_by
    if _at_the_end(chosen.max_num_batched_tokens, [s.max_num_batched_tokens for s in allowed.settings]):
        larger = [
            Setting(max_num_seqs=s.max_num_seqs, max_num_batched_tokens=chosen.max_num_batched_tokens * _FARTHER)
            for s in near
        ]
        if _any_holds(surface, larger, beyond):
            return allowed.tokens.bound_by
    if _any_holds(surface.with_targets([_without_tpot(slo) for slo in surface.targets]), near, beyond):
        return BoundBy.TPOT
    without_ttft = surface.with_targets([Slo(tpot_s=slo.tpot_s, e2e_s=slo.e2e_s) for slo in surface.targets])
    if _any_holds(without_ttft, near, beyond):
        return BoundBy.TTFT
    if any(slo.e2e_s is not None for slo in surface.targets):
        alone = [Slo(ttft_s=slo.ttft_s, tpot_s=slo.tpot_s) for slo in surface.targets]
        with_ttft = [Slo(tpot_s=slo.tpot_s) for slo in surface.targets]
        if any(_any_holds(surface.with_targets(targets), near, beyond) for targets in (alone, with_ttft)):
            return BoundBy.E2E
    return BoundBy.KNEE


def _any_holds(surface: Surface, settings: Sequence[Setting], rate: float) -> bool:
    return any(
        rate < BUSIEST * surface.capacity(limits) and surface.holds(limits, rate)
        for limits in (surface.traffic.limits(setting) for setting in settings)
    )


def _is_near(setting: Setting, chosen: Setting) -> bool:
    return (
        chosen.max_num_seqs <= setting.max_num_seqs <= 2 * chosen.max_num_seqs
        and chosen.max_num_batched_tokens <= 2 * setting.max_num_batched_tokens
        and setting.max_num_batched_tokens <= 2 * chosen.max_num_batched_tokens
    )


def _at_the_end(value: int, values: Sequence[int]) -> bool:
    return value == max(values)


def _without_tpot(slo: Slo) -> Slo:
    return Slo(ttft_s=slo.ttft_s, e2e_s=slo.e2e_s)
