"""Which stage comes next on the ceiling: warm-up, control, ramp, prefill-only, open loop.

Everything follows from the stages that are stored, so an operator that was killed goes on with the very stage
it was in. A stage that is repeated gets a letter: ramp-8, ramp-8-b, ramp-8-c.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kneekeeper.api.model import Setting
from kneekeeper.api.stage import (
    Arrivals,
    Closed,
    Fixed,
    Lengths,
    Limits,
    Open,
    Replay,
    Slo,
    Uniform,
)
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.control import Segment, is_unsteady, is_usable, segments
from kneekeeper.domain.lengths import mean_tokens, quantile_tokens
from kneekeeper.domain.ramp import LadderEnd, RampEnd, RampLimit, levels, ramp_end, ramp_limit
from kneekeeper.domain.request_kinds import ALIKE, RequestKinds, Timing

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
WARM_UP_REQUESTS = 16

CONTROL_USERS = 8
CONTROL_SPREAD = 0.25
"""Control and warm-up stages draw lengths within this share of their means: narrow, so that repeated stages
differ by the machine and not by their draws (with log-normal lengths one in five controls differed by more than
15% on a simulated server that never changed), and not fixed, so that the users do not run in lockstep."""
STAGES_BETWEEN_CONTROLS = 4
"""One control in the middle of a usual ramp and one at its end; a void segment costs at most these stages."""

TRIES_OF_INVALID = 3

TRIES_OF_UNSTEADY = 2
MORE_ROOM = 4
"""A stage that was cut off before it was steady is tried once more, with room for so many times the requests: on a
fast engine the first try may be too short to tell. A level that is not steady then is left out of all fits."""

MIN_REQUESTS, REQUESTS_PER_USER = 30, 5
FEW_USERS = 8
MIN_REQUESTS_OF_FEW_USERS = 8
TOKEN_GAPS_OF_FEW_USERS = 2000
"""Below 8 users the requests hardly differ from each other: gaps between tokens are the evidence."""

MOST_REQUESTS = 1_000_000
"""As many as a stage's limits hold."""

ROOM_FOR_WARM_UP = 4
"""A stage ends undecided at this many times its least requests (and users)."""

PREFILL_REQUESTS = 12
OPEN_LOAD_SHARES = (0.5, 0.75)
OPEN_REQUESTS = 300
"""One more than a P99 needs for its upper bound."""


@dataclass(frozen=True)
class MoreStages:
    """What a fit asks for beyond the usual stages."""

    prefill_tokens: tuple[int, ...] = ()
    """Prompt lengths of further prefill-only stages."""
    open_loads: tuple[float, ...] = ()
    """Loads of further open-loop stages, as shares of the highest throughput that meets the TPOT target."""


NO_MORE = MoreStages()


@dataclass(frozen=True)
class LadderSettings:
    """What the ladder is built from; durations in seconds."""

    slo: Slo
    prompt_tokens: Lengths
    output_tokens: Lengths
    burstiness: float | None
    """Shape of the Gamma gaps of open-loop stages, None for constant gaps."""
    max_concurrency: int
    ceiling: Setting
    max_stage_duration_s: float
    control_tolerance: float
    """Share by which neighbouring control stages may differ."""
    kv_cache_tokens: int | None
    prefill_tokens: tuple[int, ...]
    """Prompt lengths of the prefill-only stages."""
    start: int = 1
    """Which engine start this is: each is warmed up anew."""
    timing: Timing = Timing.DRAWN
    kinds: RequestKinds = ALIKE
    more: MoreStages = NO_MORE

    def open_loop(self, rate: float) -> Open | Replay:
        """Arrivals as declared, at `rate` requests per second."""
        return Replay(rate=rate) if self.timing is Timing.REPLAYED else Open(rate=rate, burstiness=self.burstiness)


@dataclass(frozen=True)
class StageOrder:
    """One stage to run, without the target and the seed."""

    name: str
    kind: StageKind
    arrivals: Arrivals
    prompt_tokens: Lengths
    output_tokens: Lengths
    limits: Limits
    kinds: RequestKinds = ALIKE
    min_pass_requests: int | None = None
    """No PASS of a judged stage on fewer; left out, as many as its arrivals and its SLO ask for."""


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
    users = min(CONTROL_USERS, settings.max_concurrency, settings.ceiling.max_num_seqs)
    limits = _limits(settings, WARM_UP_REQUESTS, users)
    return _steady(settings, f"{prefix}{len(rounds) + 1}", StageKind.WARM_UP, users, limits)


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
    # What is behind the last control may still become void, and is then repeated.
    open_part = [stage for stage in parts[-1].stages if is_usable(stage) or is_unsteady(stage)]
    ended = ramp_end(settings.slo, _limit(settings), kept) or _left_out(settings, stages, kept, done)
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
    users = min(CONTROL_USERS, settings.max_concurrency, settings.ceiling.max_num_seqs)
    limits = _limits(settings, max(MIN_REQUESTS, REQUESTS_PER_USER * users), users)
    return _steady(settings, _named(stages, name), StageKind.CONTROL, users, limits)


def _next_load(
    settings: LadderSettings,
    stages: list[StageSummary],
    kept: list[StageSummary],
    done: set[str],
    ended: RampEnd | None,
) -> StageOrder | None:
    """The first stage of the plan that is not done, leaving out what was invalid too often."""
    if ended is None:
        users = next(n for n in levels(_limit(settings).users) if f"ramp-{n}" not in done)
        name = _named(stages, f"ramp-{users}")
        return _order(settings, name, StageKind.RAMP, Closed(users=users), _ramp_limits(settings, users))
    for order in (*_prefill(settings), *_open_loop(settings, kept)):
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
    users = next((n for n in levels(limit.users) if f"ramp-{n}" not in done), None)
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


def _prefill(settings: LadderSettings) -> Iterator[StageOrder]:
    """One user and one output token: TTFT is the prompt's own time."""
    for tokens in (*settings.prefill_tokens, *settings.more.prefill_tokens):
        yield StageOrder(
            name=f"prefill-{tokens}",
            kind=StageKind.PREFILL,
            arrivals=Closed(users=1),
            prompt_tokens=Fixed(value=tokens),
            output_tokens=Fixed(value=1),
            limits=_limits(settings, PREFILL_REQUESTS, 1),
        )


def _open_loop(settings: LadderSettings, kept: list[StageSummary]) -> Iterator[StageOrder]:
    """Shares of the highest throughput that meets the TPOT target; none where no level meets it, or where
    there is no target at all."""
    target = settings.slo.tpot_s
    carried = [
        stage.requests_per_second
        for stage in kept
        if stage.kind is StageKind.RAMP and (target is None or stage.p99_tpot is None or stage.p99_tpot <= target)
    ]
    shares = (*OPEN_LOAD_SHARES, *settings.more.open_loads) if carried and settings.slo != Slo() else ()
    for number, share in enumerate(shares, start=1):
        rate = share * max(carried)
        limits = _limits(settings, OPEN_REQUESTS, 0)
        yield _order(settings, f"open-{number}", StageKind.OPEN, settings.open_loop(rate), limits)


def _ramp_limits(settings: LadderSettings, users: int) -> Limits:
    if users >= FEW_USERS:
        return _limits(settings, max(MIN_REQUESTS, REQUESTS_PER_USER * users), users)
    # Short outputs have few gaps: 30 requests are enough in any case.
    gaps = min(TOKEN_GAPS_OF_FEW_USERS, round(MIN_REQUESTS * mean_tokens(settings.output_tokens)))
    return _limits(settings, MIN_REQUESTS_OF_FEW_USERS, users, gaps, most_of=MIN_REQUESTS)


def _limits(
    settings: LadderSettings, min_requests: int, users: int, gaps: int = 0, most_of: int | None = None
) -> Limits:
    return Limits(
        min_requests=min_requests,
        min_token_gaps=gaps,
        max_requests=ROOM_FOR_WARM_UP * ((most_of or min_requests) + users),
        max_duration_s=settings.max_stage_duration_s,
    )


def _order(settings: LadderSettings, name: str, kind: StageKind, arrivals: Arrivals, limits: Limits) -> StageOrder:
    prompts, outputs = settings.prompt_tokens, settings.output_tokens
    return StageOrder(name, kind, arrivals, prompts, outputs, limits, settings.kinds)


def _steady(settings: LadderSettings, name: str, kind: StageKind, users: int, limits: Limits) -> StageOrder:
    prompts, outputs = narrow(settings.prompt_tokens), narrow(settings.output_tokens)
    return StageOrder(name, kind, Closed(users=users), prompts, outputs, limits)


def narrow(lengths: Lengths) -> Uniform:
    """Lengths near the mean, none longer than the longest of `lengths`."""
    mean = mean_tokens(lengths)
    longest = quantile_tokens(lengths, 1.0)
    return Uniform(
        low=max(1, round((1 - CONTROL_SPREAD) * mean)),
        high=max(1, min(longest, round((1 + CONTROL_SPREAD) * mean))),
    )


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
