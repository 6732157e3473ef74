"""What a stage sends and when: lengths and arrival times, drawn once from the stage's seed.

Each quantity has a random stream of its own, so that two stages of one seed that differ in their rate alone
have the same lengths (common random numbers).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from kneekeeper.api.offered_load import Closed, Empirical, Fixed, FromTrace, Lengths, LogNormal, Open, Replay, Uniform
from kneekeeper.api.stage import StageSpec
from kneekeeper.domain.arrivals import draw_arrivals, draw_starts, draw_think_times, replay
from kneekeeper.domain.prefixes import shared_blocks
from kneekeeper.domain.traces import TraceWindow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LATEST_START = 1_000_000
"""Windows of a trace begin among so many of its first requests: what lies before one is read to find it."""


class Stream(IntEnum):
    """The independent random streams of a stage."""

    PROMPT_LENGTHS = 0
    OUTPUT_LENGTHS = 1
    ARRIVALS = 2
    PROMPTS = 3
    CLASSES = 4
    THINK_TIMES = 5
    SHARED = 6
    TRACE = 7


def generator(seed: int, stream: Stream, index: int = 0) -> np.random.Generator:
    """The random stream of a stage; `index` splits it further, one part a request."""
    return np.random.default_rng([seed, stream, index])


def draw_lengths(lengths: Lengths, count: int, rng: np.random.Generator) -> Ints:
    """`count` lengths in tokens, each at least 1.

    A log-normal of mean m has mu = ln m - sigma²/2. Draws are rounded and cut to [1, maximum], so their mean
    lies below m where the cut bites. Raises TraceMissing for those of a trace.
    """
    match lengths:
        case Fixed():
            return np.full(count, lengths.value, dtype=np.int64)
        case Uniform():
            return rng.integers(lengths.low, lengths.high, count, endpoint=True)
        case LogNormal():
            mu = np.log(lengths.mean) - lengths.sigma**2 / 2
            return np.clip(np.rint(rng.lognormal(mu, lengths.sigma, count)), 1, lengths.maximum).astype(np.int64)
        case Empirical():
            low, high, weight = (
                np.array([getattr(part, name) for part in lengths.bins], dtype=np.int64)
                for name in ("low", "high", "weight")
            )
            chosen = rng.choice(weight.size, size=count, p=weight / weight.sum())
            return rng.integers(low[chosen], high[chosen], endpoint=True)
        case FromTrace():
            raise TraceMissing("lengths of a trace are not drawn but taken from it; see draw_workload")


@dataclass(frozen=True, eq=False)
class Workload:
    """The requests of a stage, in the order in which they are sent.

    `intended_s` are the send times of an open loop, or when the users of a closed loop start: its later
    requests follow from the answers, each after the `think_s` of its own. `request_class` are indices of the
    spec's classes. Columns that are empty are zero throughout.
    """

    prompt_tokens: Ints
    output_tokens: Ints
    intended_s: Floats
    think_s: Floats = field(default_factory=lambda: np.empty(0))
    request_class: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    shared_blocks: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return int(self.prompt_tokens.size)

    @property
    def mean_rate(self) -> float:
        """Requests per second over the times that are known; 0 where they have no extent."""
        span_s = float(self.intended_s[-1] - self.intended_s[0]) if self.intended_s.size else 0.0
        return (self.intended_s.size - 1) / span_s if span_s > 0 else 0.0


NO_REQUESTS = Workload(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))


class TraceMissing(ValueError):
    """The stage needs a trace and the agent has none. Declare spec.workload.traceRef."""


def window_start(spec: StageSpec, trace_requests: int) -> int:
    """Which request of the trace is the stage's first: another one for each seed, so that stages see different
    parts, and one from which the trace lasts for the whole stage if it can."""
    latest = min(max(trace_requests - spec.limits.max_requests, 0), LATEST_START)
    return int(generator(spec.seed, Stream.TRACE).integers(0, latest, endpoint=True))


def draw_workload(spec: StageSpec, trace: TraceWindow | None = None) -> Workload:
    """All `max_requests` requests of the stage; the same for the same spec and window of the trace.

    Users of a closed loop who start together with requests of one length stay in step, and their prefills
    merge for the whole stage. So they start spread out, and the first request of each is cut to a random part
    of its length: a stage then begins in the middle of requests, as if it had been going on. These first
    requests all start before `START_SPREAD_S` and the think time, and belong to the warm-up.
    Raises TraceMissing where the spec needs a trace of as many requests and there is none.
    """
    count = spec.limits.max_requests
    if spec.needs_trace and (trace is None or trace.at_s.size < count):
        raise TraceMissing(f"stage {spec.id} replays a trace, and the agent has none; declare spec.workload.traceRef")
    classes = draw_classes(spec, count)
    prompts = _draw_column("prompt_tokens", spec, classes, trace)
    outputs = _draw_column("output_tokens", spec, classes, trace)
    shared = shared_blocks(spec.prefix, prompts) if spec.prefix is not None else np.empty(0, dtype=np.int64)
    rng = generator(spec.seed, Stream.ARRIVALS)
    match spec.arrivals:
        case Open():
            times = draw_arrivals(spec.arrivals, count, rng)
            return Workload(prompts, outputs, times, request_class=classes, shared_blocks=shared)
        case Replay():
            assert trace is not None  # checked above
            times = replay(spec.arrivals, trace.at_s[:count])
            return Workload(prompts, outputs, times, request_class=classes, shared_blocks=shared)
        case Closed():
            users = min(spec.arrivals.users, count)
            outputs[:users] = np.ceil(outputs[:users] * (1 - rng.random(users))).astype(np.int64)
            starts = draw_starts(spec.arrivals, count, rng)
            think_s = draw_think_times(spec.arrivals, count, generator(spec.seed, Stream.THINK_TIMES))
            return Workload(prompts, outputs, starts, think_s, classes, shared)


def draw_classes(spec: StageSpec, count: int) -> Ints:
    """The class of each request, drawn by weight; empty without a mix."""
    if not spec.classes:
        return np.empty(0, dtype=np.int64)
    weights = np.array([kind.weight for kind in spec.classes], dtype=np.float64)
    rng = generator(spec.seed, Stream.CLASSES)
    return rng.choice(len(spec.classes), size=count, p=weights / weights.sum()).astype(np.int64)


_STREAMS = {"prompt_tokens": Stream.PROMPT_LENGTHS, "output_tokens": Stream.OUTPUT_LENGTHS}


def _draw_column(name: str, spec: StageSpec, classes: Ints, trace: TraceWindow | None) -> Ints:
    """Lengths of all requests. Each class draws from a stream of its own, for all requests: so those of one
    class do not change with the weights of the others."""
    count = spec.limits.max_requests

    def column(lengths: Lengths, part: int) -> Ints:
        if isinstance(lengths, FromTrace):
            assert trace is not None  # checked by draw_workload
            tokens = trace.prompt_tokens if name == "prompt_tokens" else trace.output_tokens
            return np.minimum(tokens[:count], lengths.maximum)
        return draw_lengths(lengths, count, generator(spec.seed, _STREAMS[name], part))

    if not spec.classes:
        return column(getattr(spec, name), 0)
    columns = [column(getattr(kind, name), part) for part, kind in enumerate(spec.classes, start=1)]
    return np.array(np.choose(classes, columns), dtype=np.int64)


def draw_prompt(seed: int, index: int, tokens: int, low: int, high: int, shared_tokens: int = 0) -> Ints:
    """The token ids of request `index`. Its first `shared_tokens` are those of the seed's shared stream; from
    there on they are random: no prefix cache can hold a part of them."""
    own = generator(seed, Stream.PROMPTS, index).integers(low, high, tokens - shared_tokens, endpoint=True)
    if not shared_tokens:
        return own
    return np.concatenate([shared_stream(seed, shared_tokens, low, high), own])


def shared_stream(seed: int, tokens: int, low: int, high: int) -> Ints:
    """The first `tokens` ids of the stream that the prompts of a stage begin with; a longer one begins alike."""
    return generator(seed, Stream.SHARED).integers(low, high, tokens, endpoint=True)
