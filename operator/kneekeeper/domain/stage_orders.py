"""The stages of a ladder, each with the requests that it takes to tell what it is for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Arrivals, Closed, Fixed, Lengths, Open, Replay, Uniform
from kneekeeper.api.stage import Limits, Slo
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.lengths import mean_tokens, quantile_tokens
from kneekeeper.domain.request_kinds import ALIKE, RequestKinds, Timing

WARM_UP_REQUESTS = 16

CONTROL_USERS = 8
CONTROL_SPREAD = 0.25
"""Control and warm-up stages draw lengths within this share of their means: narrow, so that repeated stages
differ by the machine and not by their draws (with log-normal lengths one in five controls differed by more than
15% on a simulated server that never changed), and not fixed, so that the users do not run in lockstep."""
REPEATED_OUTPUT_TOKENS = 100
"""At most so many on average in control and warm-up stages: what is repeated to see whether it is the same shows it
in a hundred steps a request, and answers of several hundred tokens would take minutes of each engine start."""

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
FEWEST_OPEN_REQUESTS = 100
OPEN_STAGE_S = 30.0
"""Slow engines get fewer, as many as come in this time: their P99 is an estimate then, and the fit knows how good."""


@dataclass(frozen=True)
class MoreStages:
    """What a fit asks for beyond the usual stages."""

    prefill_tokens: tuple[int, ...] = ()
    """Prompt lengths of further prefill-only stages."""
    open_loads: tuple[float, ...] = ()
    """Loads of further open-loop stages, as shares like the usual ones'."""


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


def warm_up_order(settings: LadderSettings, name: str) -> StageOrder:
    """A round of a few requests on an engine that has just started."""
    users = _repeated_users(settings)
    return _repeated(settings, name, StageKind.WARM_UP, users, _limits(settings, WARM_UP_REQUESTS, users))


def control_order(settings: LadderSettings, name: str) -> StageOrder:
    """The load that is repeated between the others."""
    users = _repeated_users(settings)
    limits = _limits(settings, max(MIN_REQUESTS, REQUESTS_PER_USER * users), users)
    return _repeated(settings, name, StageKind.CONTROL, users, limits)


def ramp_order(settings: LadderSettings, name: str, users: int) -> StageOrder:
    """A level of the closed loop."""
    return _declared(settings, name, StageKind.RAMP, Closed(users=users), _ramp_limits(settings, users))


def prefill_orders(settings: LadderSettings) -> Iterator[StageOrder]:
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


def open_loop_orders(settings: LadderSettings, kept: Sequence[StageSummary]) -> Iterator[StageOrder]:
    """Shares of the highest throughput of a level at which most requests meet the TPOT target: a smaller budget than
    the ceiling's shortens tails, so the P99 says nothing of the loads that will be chosen from. None where no level
    meets it, or where there is no target at all."""
    target = settings.slo.tpot_s
    carried = [
        stage.requests_per_second
        for stage in kept
        if stage.kind is StageKind.RAMP and (target is None or stage.p50_tpot is None or stage.p50_tpot <= target)
    ]
    shares = (*OPEN_LOAD_SHARES, *settings.more.open_loads) if carried and settings.slo.has_target else ()
    for number, share in enumerate(shares, start=1):
        rate = share * max(carried)
        requests = min(OPEN_REQUESTS, max(FEWEST_OPEN_REQUESTS, round(OPEN_STAGE_S * rate)))
        limits = _limits(settings, requests, 0)
        yield _declared(settings, f"open-{number}", StageKind.OPEN, settings.open_loop(rate), limits)


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


def _declared(settings: LadderSettings, name: str, kind: StageKind, arrivals: Arrivals, limits: Limits) -> StageOrder:
    """Requests as the workload declares them."""
    prompts, outputs = settings.prompt_tokens, settings.output_tokens
    return StageOrder(name, kind, arrivals, prompts, outputs, limits, settings.kinds)


def _repeated_users(settings: LadderSettings) -> int:
    return min(CONTROL_USERS, settings.max_concurrency, settings.ceiling.max_num_seqs)


def _repeated(settings: LadderSettings, name: str, kind: StageKind, users: int, limits: Limits) -> StageOrder:
    prompts = narrow(settings.prompt_tokens)
    outputs = narrow(settings.output_tokens, REPEATED_OUTPUT_TOKENS)
    return StageOrder(name, kind, Closed(users=users), prompts, outputs, limits)


def narrow(lengths: Lengths, most_on_average: int | None = None) -> Uniform:
    """Lengths near the mean, or near `most_on_average` where that is less; none longer than any of `lengths`."""
    mean = min(mean_tokens(lengths), most_on_average or float("inf"))
    longest = quantile_tokens(lengths, 1.0)
    return Uniform(
        low=max(1, round((1 - CONTROL_SPREAD) * mean)),
        high=max(1, min(longest, round((1 + CONTROL_SPREAD) * mean))),
    )
