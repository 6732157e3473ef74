"""The levels of a closed-loop ramp, and the rules that end it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import StageKind, StageSummary

FAR_PAST = 1.5
"""A P99 this many times its target is no noise: repeated runs of one stage near saturation differ by up to
that much (published P99 TTFTs at a saturation knee spread over a factor of 2.4, below it far less)."""
LEVELS_FAR_PAST = 2

PROPORTIONAL_GAIN = 0.8
"""Of a doubling of the users: with so much of it as throughput the engine is far from its knee, and the level between
two others would show what these show."""

FLAT_GAIN = 0.05
FLAT_DOUBLINGS = 2
"""Twice, because one stage may be slow by chance: throughput of a stage is known to about 5%."""


class LadderEnd(StrEnum):
    """Why a ladder is over."""

    PAST_TARGETS = "PastTargets"
    FLATTENED = "Flattened"
    KV_LIMIT = "KVLimit"
    USER_BOUND = "UserBound"
    CEILING = "Ceiling"
    CLIENT_LIMIT = "ClientLimit"
    CONTROLS_DISAGREE = "ControlsDisagree"
    NOT_MEASURABLE = "NotMeasurable"


@dataclass(frozen=True)
class RampEnd:
    """Why no higher level is tried."""

    reason: LadderEnd
    message: str


@dataclass(frozen=True)
class RampLimit:
    """The highest level, and what sets it."""

    users: int
    reason: LadderEnd
    message: str


def ramp_limit(
    max_concurrency: int, max_num_seqs: int, kv_cache_tokens: int | None, mean_tokens_per_request: float
) -> RampLimit:
    """The lowest of the user's bound, the ceiling's sequences, and the requests that the KV cache holds.

    Beyond the last of these a closed loop would only measure a queue, or preemptions.
    """
    limits = [
        RampLimit(max_concurrency, LadderEnd.USER_BOUND, "spec.probe.ladder.maxConcurrency was reached."),
        RampLimit(max_num_seqs, LadderEnd.CEILING, "The ceiling's max_num_seqs was reached."),
    ]
    if kv_cache_tokens is not None:
        held = max(1, math.floor(kv_cache_tokens / mean_tokens_per_request))
        limits.append(RampLimit(held, LadderEnd.KV_LIMIT, f"The KV cache holds about {held} requests."))
    return min(limits, key=lambda limit: limit.users)


def levels(highest: int, stages: Sequence[StageSummary]) -> Iterator[int]:
    """1, 2, 4, 8, … and at last `highest` itself; a level is left out where throughput grew almost in proportion to
    the users up to the one before it, as far as the usable `stages` tell."""
    tried = {stage.users: stage for stage in stages if stage.kind is StageKind.RAMP}
    before, level = None, 1
    while level < highest:
        yield level
        a, b = tried.get(before), tried.get(level)
        straight = a is not None and b is not None and _gain_per_doubling(a, b) >= PROPORTIONAL_GAIN
        before, level = level, 4 * level if straight and 4 * level < highest else 2 * level
    yield highest


def ramp_end(
    slo: Slo, limit: RampLimit, stages: Sequence[StageSummary], unsteady: Sequence[StageSummary] = ()
) -> RampEnd | None:
    """What ends the ramp after these usable stages; None: the next level is worth its time. Of `unsteady` ones nothing
    but a median beyond a target is believed: what is still filling up gets slower."""
    ramp = sorted(
        (stage for stage in stages if stage.kind is StageKind.RAMP and stage.users is not None),
        key=lambda stage: stage.users or 0,
    )
    if not ramp:
        return None
    hopeless = next((stage for stage in (ramp[-1], *unsteady) if _is_hopeless(stage, slo)), None)
    if hopeless is not None:
        return RampEnd(LadderEnd.PAST_TARGETS, f"Most requests missed a target at {hopeless.users} users.")
    if len(ramp) >= LEVELS_FAR_PAST and all(is_far_past(stage, slo) for stage in ramp[-LEVELS_FAR_PAST:]):
        return RampEnd(
            LadderEnd.PAST_TARGETS,
            f"Every target was missed by more than {FAR_PAST - 1:.0%} at {ramp[-2].users} and at "
            f"{ramp[-1].users} users.",
        )
    gains = [_gain_per_doubling(a, b) for a, b in itertools.pairwise(ramp)]
    if len(gains) >= FLAT_DOUBLINGS and max(gains[-FLAT_DOUBLINGS:]) < FLAT_GAIN:
        return RampEnd(
            LadderEnd.FLATTENED,
            f"Throughput grew by less than {FLAT_GAIN:.0%} from {ramp[-3].users} to {ramp[-2].users} and to "
            f"{ramp[-1].users} users.",
        )
    if (ramp[-1].users or 0) >= limit.users:
        return RampEnd(limit.reason, limit.message)
    return None


def is_far_past(stage: StageSummary, slo: Slo) -> bool:
    """Whether every target that a stage's P99s can be held against is missed by far; False without targets."""
    pairs = ((stage.p99_ttft, slo.ttft_s), (stage.p99_tpot, slo.tpot_s), (stage.p99_e2e, slo.e2e_s))
    judged = [(p99, target) for p99, target in pairs if p99 is not None and target is not None]
    return bool(judged) and all(p99 > FAR_PAST * target for p99, target in judged)


def _is_hopeless(stage: StageSummary, slo: Slo) -> bool:
    """Whether the median misses any target: the users of a closed loop do not queue, so no other target makes up for
    it, and with more users at a time more requests miss. Once is enough, since a median is no matter of chance. A P99
    would not do: a smaller token budget than the ceiling's lowers it."""
    pairs = ((stage.p50_ttft, slo.ttft_s), (stage.p50_tpot, slo.tpot_s), (stage.p50_e2e, slo.e2e_s))
    return any(p50 is not None and target is not None and p50 > target for p50, target in pairs)


def _gain_per_doubling(before: StageSummary, after: StageSummary) -> float:
    """How much throughput grows per doubling of users, also where the last level is not a doubling.

    Output tokens, because lengths are drawn: their mean differs between stages of few requests.
    """
    if before.output_tokens_per_second <= 0 or not before.users or not after.users:
        return math.inf
    ratio = after.output_tokens_per_second / before.output_tokens_per_second
    return float(ratio ** (1 / math.log2(after.users / before.users))) - 1
