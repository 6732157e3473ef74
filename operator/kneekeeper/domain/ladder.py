"""Which stage comes next on the ceiling: warm-up, control, ramp, prefill-only, steps, open loop.

Everything follows from the stages that are stored, so an operator that was killed goes on with the very stage
it was in. A stage that is repeated gets a letter: ramp-8, ramp-8-b, ramp-8-c.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.control import Segment, is_unsteady, is_usable, segments
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.ramp import LadderEnd, RampEnd, RampLimit, levels, ramp_end, ramp_limit
from kneekeeper.domain.request_kinds import ALIKE, RequestKinds, Timing
from kneekeeper.domain.stage_orders import (
    MOST_REQUESTS,
    LadderSettings,
    StageOrder,
    control_order,
    open_loop_orders,
    prefill_orders,
    ramp_order,
    step_orders,
    warm_up_order,
)

__all__ = [
    "ALIKE",
    "LadderDone",
    "LadderEnd",
    "LadderSettings",
    "RequestKinds",
    "StageOrder",
    "Timing",
    "next_stage",
    "next_warm_up",
]

WARM_UP_ROUNDS = 5
WARM_UP_AGREEMENT = 0.25
"""Two rounds in a row with medians this close are warm; the first requests of an engine can be slower by
orders of magnitude (graph capture, compilation), so a coarse limit tells."""
STAGES_BETWEEN_CONTROLS = 6
"""One control after a usual ramp and one or two behind what follows it; a void segment costs at most these stages."""

TRIES_OF_INVALID = 3

TRIES_OF_UNSTEADY = 2
MORE_ROOM = 4
"""A stage that was cut off before it was steady is tried once more, with room for so many times the requests: on a
fast engine the first try may be too short to tell. A level that is not steady then is left out of all fits."""


@dataclass(frozen=True)
class LadderDone:
    """The ladder has ended; `reason` says what ended the ramp, or why nothing can be concluded."""

    reason: LadderEnd
    message: str


def next_stage(settings: LadderSettings, stages: Sequence[StageSummary]) -> StageOrder | LadderDone:
    """The stage to run now, given all that have ended (verdicts Invalid and Void included), or the end."""
    warm_up = next_warm_up(settings, stages, settings.start)
    if warm_up is not None:
        return warm_up
    try:
        return _after_warm_up(settings, [stage for stage in stages if stage.setting == settings.ceiling])
    except _OutOfTries as failure:
        return LadderDone(LadderEnd.NOT_MEASURABLE, failure.message)


def next_warm_up(settings: LadderSettings, stages: Sequence[StageSummary], start: int) -> StageOrder | None:
    """The next warm-up round of the `start`-th engine start; None when it is warm, or rounds are used up."""
    prefix = f"warm-up-{start}-"
    rounds = [stage for stage in stages if stage.kind is StageKind.WARM_UP and stage.name.startswith(prefix)]
    if len(rounds) >= WARM_UP_ROUNDS or (len(rounds) >= 2 and _is_warm(rounds[-2], rounds[-1])):
        return None
    return warm_up_order(settings, f"{prefix}{len(rounds) + 1}")


def _is_warm(before: StageSummary, after: StageSummary) -> bool:
    if not (is_usable(before) and is_usable(after)):
        return False
    pairs = ((before.p50_ttft, after.p50_ttft), (before.p50_tpot, after.p50_tpot))
    return all(max(a, b) <= (1 + WARM_UP_AGREEMENT) * min(a, b) for a, b in pairs if a and b)


class _OutOfTries(Exception):
    """What everything rests on could not be measured; the message says what, and why."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


def _invalid(name: str, why: str) -> str:
    return f"Stage {name} was invalid {TRIES_OF_INVALID} times: {why}"


def _after_warm_up(settings: LadderSettings, stages: list[StageSummary]) -> StageOrder | LadderDone:
    parts = segments(stages)
    if not parts:
        return _control(settings, stages)
    void = [part.is_void(settings.control_tolerance) for part in parts]
    if len(void) > 2 and void[-2] and void[-3]:
        return _controls_disagree(settings, parts)
    held = [stage for part, is_void in zip(parts, void, strict=True) if not is_void for stage in part.stages]
    kept = [stage for stage in held if is_usable(stage)]
    unsteady = Counter(_base(stage.name) for stage in held if is_unsteady(stage))
    done = {_base(stage.name) for stage in kept} | {name for name, n in unsteady.items() if n >= TRIES_OF_UNSTEADY}
    # More room is no help to a stage that ran out of time.
    out_of_time = [stage for stage in held if is_unsteady(stage) and stage.duration >= settings.max_stage_duration_s]
    done |= {_base(stage.name) for stage in out_of_time}
    # What is behind the last control may still become void, and is then repeated.
    open_part = [stage for stage in parts[-1].stages if is_usable(stage) or is_unsteady(stage)]
    filling = [stage for stage in held if is_unsteady(stage) and stage.kind is StageKind.RAMP]
    ended = ramp_end(settings.slo, _limit(settings), kept, filling) or _left_out(settings, stages, kept, done)
    wanted = None
    if len(open_part) < STAGES_BETWEEN_CONTROLS:
        wanted = _next_load(settings, stages, kept, done, ended)
    if wanted is not None:
        wanted = _with_room(wanted, unsteady[_base(wanted.name)])
    if wanted is not None:
        return wanted
    if open_part:
        return _control(settings, stages)
    assert ended is not None  # else there was a next level
    return LadderDone(ended.reason, ended.message)


def _controls_disagree(settings: LadderSettings, parts: list[Segment]) -> LadderDone:
    drifts = ", ".join(f"{part.drift:.0%}" for part in parts if part.drift is not None)
    return LadderDone(
        LadderEnd.CONTROLS_DISAGREE,
        f"The same load gave results that differ by {drifts} between neighbouring control stages; allowed is "
        f"{settings.control_tolerance:.0%}. Look for other work on the node and for CPU or GPU throttling, or "
        "raise spec.probe.ladder.controlTolerancePercent.",
    )


def _control(settings: LadderSettings, stages: list[StageSummary]) -> StageOrder:
    done = sum(stage.kind is StageKind.CONTROL and is_usable(stage) for stage in stages)
    name = f"control-{done + 1}"
    if _tries(stages, name).invalid >= TRIES_OF_INVALID:
        raise _OutOfTries(_invalid(name, _tries(stages, name).message))
    return control_order(settings, _named(stages, name))


def _next_load(
    settings: LadderSettings,
    stages: list[StageSummary],
    kept: list[StageSummary],
    done: set[str],
    ended: RampEnd | None,
) -> StageOrder | None:
    """The first stage of the plan that is not done, leaving out what was invalid too often."""
    if ended is None:
        users = next(n for n in levels(_limit(settings).users, kept) if f"ramp-{n}" not in done)
        return ramp_order(settings, _named(stages, f"ramp-{users}"), users)
    for order in (*prefill_orders(settings), *step_orders(settings, kept), *open_loop_orders(settings, kept)):
        if order.name not in done and _tries(stages, order.name).invalid < TRIES_OF_INVALID:
            return replace(order, name=_named(stages, order.name))
    return None


def _with_room(order: StageOrder, unsteady_tries: int) -> StageOrder:
    if unsteady_tries == 0:
        return order
    room = order.limits.max_requests * MORE_ROOM**unsteady_tries
    return replace(order, limits=order.limits.model_copy(update={"max_requests": min(room, MOST_REQUESTS)}))


def _left_out(
    settings: LadderSettings, stages: list[StageSummary], kept: list[StageSummary], done: set[str]
) -> RampEnd | None:
    """The ramp ends below the first level that the client could not hold, and where all that is left was not
    steady; nothing below is a failure. Raises _OutOfTries."""
    limit = _limit(settings)
    users = next((n for n in levels(limit.users, kept) if f"ramp-{n}" not in done), None)
    if users is None:
        if not any(stage.kind is StageKind.RAMP for stage in kept):
            last = next(stage for stage in reversed(stages) if stage.kind is StageKind.RAMP)
            raise _OutOfTries(
                f"No level was steady in {TRIES_OF_UNSTEADY} tries: {last.message} Raise "
                "spec.probe.ladder.maxStageDuration, and look for other work on the node."
            )
        return RampEnd(limit.reason, f"{limit.message} Levels that were not steady are left out.")
    if _tries(stages, f"ramp-{users}").invalid < TRIES_OF_INVALID:
        return None
    why = _tries(stages, f"ramp-{users}").message
    if users == 1:
        raise _OutOfTries(_invalid("ramp-1", why))
    return RampEnd(LadderEnd.CLIENT_LIMIT, f"No valid stage with {users} users: {why}")


def _limit(settings: LadderSettings) -> RampLimit:
    tokens = mean_tokens(settings.prompt_tokens) + mean_tokens(settings.output_tokens)
    return ramp_limit(settings.max_concurrency, settings.ceiling.max_num_seqs, settings.kv_cache_tokens, tokens)


@dataclass(frozen=True)
class _Tries:
    all: int
    invalid: int
    message: str


def _tries(stages: Sequence[StageSummary], base: str) -> _Tries:
    found = [stage for stage in stages if _base(stage.name) == base]
    invalid = [stage for stage in found if stage.verdict is Verdict.INVALID]
    return _Tries(len(found), len(invalid), invalid[-1].message if invalid else "")


_REPEATED = re.compile(r"-[b-z]$")


def _base(name: str) -> str:
    return _REPEATED.sub("", name)


def _named(stages: Sequence[StageSummary], base: str) -> str:
    """The name of the next try: ramp-8, ramp-8-b, ramp-8-c."""
    tries = _tries(stages, base).all
    return base if tries == 0 else f"{base}-{chr(ord('a') + tries)}"
