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
REPEATED_PROMPT_TOKENS, REPEATED_OUTPUT_TOKENS = 500, 100
"""At most so many on average in control and warm-up stages: what is repeated to see whether it is the same shows it
in a hundred steps a request, and documents or long answers would take minutes of each engine start."""

MIN_REQUESTS, REQUESTS_PER_USER = 30, 3
FEW_USERS = 8
MIN_REQUESTS_OF_FEW_USERS = 8
TOKEN_GAPS_OF_FEW_USERS = 2000
"""Below 8 users the requests hardly differ from each other: gaps between tokens are the evidence."""

MOST_REQUESTS = 1_000_000
"""As many as a stage's limits hold."""

ROOM_FOR_WARM_UP = 4
"""A stage ends undecided at this many times its least requests (and users)."""

PREFILL_REQUESTS = 12

SHORT_PROMPT_TOKENS = 16
SHORT_OUTPUT_TOKENS = 64
"""Requests of `steps-many` hold next to no context: what their steps take more than one of a lone request is the cost
of sequences alone. Under the declared load both grow together."""
FULL_USERS, FULL_OUTPUT_TOKENS = 16, 16
"""As many users as answer tokens: about one prompt joins in every step of `steps-full`."""
STEP_REQUESTS_PER_USER = 2
_AMPLE_TOKENS = 2**40
"""Where nothing is known of the KV cache, it does not bind."""

OPEN_LOAD_SHARES = (0.75,)
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


def step_orders(settings: LadderSettings, kept: Sequence[StageSummary]) -> Iterator[StageOrder]:
    """Two loops that tell apart what the ramp shows together: many sequences that hold next to no context, and few
    whose every step has about as many prompt tokens as the TPOT target leaves time for."""
    users = max((stage.users or 1 for stage in kept if stage.kind is StageKind.RAMP), default=1)
    output_tokens = min(SHORT_OUTPUT_TOKENS, mean_tokens(settings.output_tokens))
    yield _steps(settings, "steps-many", users, SHORT_PROMPT_TOKENS, output_tokens)
    prompt_tokens = _full_step(settings, kept)
    if prompt_tokens is not None:
        held = max(1, (settings.kv_cache_tokens or _AMPLE_TOKENS) // (2 * prompt_tokens))
        yield _steps(settings, "steps-full", min(FULL_USERS, users, held), prompt_tokens, FULL_OUTPUT_TOKENS)


def _steps(settings: LadderSettings, name: str, users: int, prompt_tokens: float, output_tokens: float) -> StageOrder:
    requests = max(MIN_REQUESTS, STEP_REQUESTS_PER_USER * users)
    limits = _limits(settings, requests, users)
    prompts, outputs = around(prompt_tokens), around(output_tokens)
    return StageOrder(name, StageKind.STEPS, Closed(users=users), prompts, outputs, limits)


def _full_step(settings: LadderSettings, kept: Sequence[StageSummary]) -> int | None:
    """Prompt tokens of a step that takes as long as the TPOT target, by the line through the two shortest prompts; at
    most as many as the longest prompt, and as fit into a step of the ceiling. None without a target or two prompts."""
    alone = sorted(
        (stage.prompt_tokens_mean, stage.p50_ttft)
        for stage in kept
        if stage.kind is StageKind.PREFILL and stage.p50_ttft is not None
    )
    if settings.slo.tpot_s is None or len(alone) < 2:
        return None
    (short, short_s), (longer, longer_s) = alone[:2]
    most = min(quantile_tokens(settings.prompt_tokens, 1.0), settings.ceiling.max_num_batched_tokens - FULL_USERS)
    if longer_s <= short_s:
        return None
    wanted = short + (settings.slo.tpot_s - short_s) * (longer - short) / (longer_s - short_s)
    return int(min(most / (1 + CONTROL_SPREAD), max(SHORT_PROMPT_TOKENS, wanted)))


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
    prompts = narrow(settings.prompt_tokens, REPEATED_PROMPT_TOKENS)
    outputs = narrow(settings.output_tokens, REPEATED_OUTPUT_TOKENS)
    return StageOrder(name, kind, Closed(users=users), prompts, outputs, limits)


def narrow(lengths: Lengths, most_on_average: int | None = None) -> Uniform:
    """Lengths near the mean, or near `most_on_average` where that is less; none longer than any of `lengths`."""
    mean = min(mean_tokens(lengths), most_on_average or float("inf"))
    near, longest = around(mean), quantile_tokens(lengths, 1.0)
    return Uniform(low=near.low, high=max(1, min(longest, near.high)))


def around(mean: float) -> Uniform:
    """Lengths within CONTROL_SPREAD of a mean."""
    return Uniform(low=max(1, round((1 - CONTROL_SPREAD) * mean)), high=max(1, round((1 + CONTROL_SPREAD) * mean)))
