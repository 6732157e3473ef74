"""Measured stages as the twin runs them again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kneekeeper.api.offered_load import Closed
from kneekeeper.api.tuning_run import StageKind, StageSummary
from kneekeeper.domain.arrivals import draw_starts
from kneekeeper.domain.samples import Floats, Ints
from kneekeeper.domain.stage_orders import around
from kneekeeper.domain.twin.law import Law
from kneekeeper.domain.twin.simulate import Load, TwinLimits, TwinResult, simulate
from kneekeeper.domain.twin.traffic import TwinTraffic
from kneekeeper.domain.workload import draw_lengths

MODEL_ERROR = 0.03
"""Of a median or a rate, as a share: no stage of a real engine is reproduced better."""
MODEL_ERROR_OF_TAIL = 0.10
"""Of a P99."""

OWN_LENGTHS = (StageKind.PREFILL, StageKind.STEPS)
"""Kinds of stages whose lengths are not the workload's."""

_LEAST_REQUESTS = 300
_LEAST_SPREAD = 0.02
_Z99 = 2.326
_P99_ERROR = 3.73
"""Standard error of the logarithm of a P99 in units of spread / sqrt(n): sqrt(0.99 * 0.01) / density at z = 2.33."""
_P50_ERROR = 1.25
_SEED = 20_244


@dataclass(frozen=True)
class LoadSize:
    """How many times as many requests as were measured the twin runs, and how many at most."""

    times: int
    most_requests: int


FOR_MEANS = LoadSize(5, 2_000)
"""Enough for what a stage shows on average."""

FOR_QUANTILES = LoadSize(20, 20_000)
"""Enough for what it shows by chance once in twenty times."""


@dataclass(frozen=True, eq=False)
class TwinStage:
    """One stage: what was measured, on logarithms, and the load and limits that it was measured with."""

    load: Load
    limits: TwinLimits
    measured: Floats
    sampling_error: Floats
    """Standard errors of `measured` that come from the number of requests."""
    model_error: Floats
    """What no law gets better than."""
    statistics: tuple[str, ...]
    """Which numbers `measured` holds."""
    requests: int
    """Measured ones: a P99 of few requests is nearer to their longest."""
    warm_up: int
    """First requests of the load, left out."""

    @property
    def error(self) -> Floats:
        """Standard errors of `measured` against a prediction."""
        return np.hypot(self.sampling_error, self.model_error)

    def predict(self, law: Law) -> Floats:
        """The logarithms that the stage would have shown under this law."""
        return np.array([blocks.mean() for blocks in self.blocks(law)], dtype=np.float64)

    def with_errors_of(self, law: Law) -> TwinStage:
        """The stage with the sampling errors that it has under this law, if they are larger: tails may be heavier
        than log-normal, and requests of one time are alike."""
        spread = [blocks.std(ddof=1) if blocks.size > 1 else 0.0 for blocks in self.blocks(law)]
        return replace(self, sampling_error=np.maximum(self.sampling_error, spread))

    def blocks(self, law: Law) -> list[Floats]:
        """Each statistic's logarithm, over parts of the load with as many requests as were measured."""
        result = simulate(self.load, self.limits, law)
        until = len(self.load) - self.load.users
        ttft_s, tpot_s = result.ttft_s[self.warm_up : until], result.tpot_s[self.warm_up : until]
        found = []
        for name in self.statistics:
            if name == "output_rate":
                values = np.array([_output_rate(result, self.load.users, self.warm_up)])
            else:
                quantile = 0.5 if name.startswith("p50") else 0.99
                values = self._quantiles(ttft_s if name.endswith("ttft") else tpot_s, quantile)
            found.append(np.log(np.maximum(values, 1e-9)))
        return found

    def _quantiles(self, values: Floats, q: float) -> Floats:
        known = values[~np.isnan(values)]
        blocks, size = max(1, known.size // self.requests), min(self.requests, known.size)
        return np.asarray(np.quantile(known[: blocks * size].reshape(blocks, size), q, axis=1), dtype=np.float64)


def twin_stage(stage: StageSummary, traffic: TwinTraffic, size: LoadSize = FOR_MEANS) -> TwinStage | None:
    """The stage for the twin; None where it has nothing to compare.

    Lengths are drawn from the workload's distributions and scaled to the stage's means, since a short stage's draw
    may be far off. Of a saturated stage nothing but TPOT is compared.
    """
    statistics = _statistics(stage)
    if not statistics or stage.requests < 1:
        return None
    users = stage.users or 0
    warm_up = 2 * users if users else max(1, stage.requests // 10)
    count = int(np.clip(size.times * stage.requests, _LEAST_REQUESTS, size.most_requests)) + warm_up + users
    if stage.kind is StageKind.PREFILL:
        warm_up, count = 1, 3
    drawn = traffic.draw(count, _SEED + users)
    prompt_tokens = _scaled(drawn.prompt_tokens, stage.prompt_tokens_mean)
    output_tokens = _scaled(drawn.output_tokens, stage.output_tokens_mean)
    hits = traffic.prefix_hits(prompt_tokens)
    if stage.kind in OWN_LENGTHS:
        prompt_tokens, output_tokens, hits = *_own_lengths(stage, count), None
    if users:
        rng = np.random.default_rng([_SEED, users])
        arrival_s = np.concatenate([draw_starts(Closed(users=users), users, rng), np.zeros(count - users)])
        output_tokens[:users] = np.ceil(output_tokens[:users] * (1 - rng.random(users))).astype(np.int64)
    else:
        arrival_s = drawn.arrival_s / (stage.offered_requests_per_second or stage.requests_per_second)
    values = np.array([_value(stage, name) for name in statistics], dtype=np.float64)
    return TwinStage(
        load=Load(arrival_s, prompt_tokens, output_tokens, hits, users=users),
        limits=traffic.limits(stage.setting),
        measured=np.log(values),
        sampling_error=np.array([_sampling_error(stage, name) for name in statistics], dtype=np.float64),
        model_error=np.array([_model_error(name) for name in statistics], dtype=np.float64),
        statistics=statistics,
        requests=1 if stage.kind is StageKind.PREFILL else stage.requests,
        warm_up=warm_up,
    )


def _own_lengths(stage: StageSummary, count: int) -> tuple[Ints, Ints]:
    """Prompts and answers of a stage whose lengths are not the workload's. Its prompts share no prefix either."""
    if stage.kind is StageKind.PREFILL:
        return np.full(count, round(stage.prompt_tokens_mean), np.int64), np.ones(count, np.int64)
    rng = np.random.default_rng([_SEED, 1])
    prompts, outputs = (
        draw_lengths(around(mean), count, rng) for mean in (stage.prompt_tokens_mean, stage.output_tokens_mean)
    )
    return prompts, outputs


def _output_rate(result: TwinResult, users: int, warm_up: int) -> float:
    """Tokens/s from when `warm_up` requests have ended until the last one is sent, since all users are busy until then.

    The tokens of a request are spread evenly between its first and its last one, as the load agent counts them: of
    those that happen to end inside, the long ones at both ends would be missing or too many.
    """
    from_s, until_s = float(np.sort(result.last_s)[warm_up - 1]), float(result.arrival_s.max())
    decode_s = np.maximum(result.last_s - result.first_s, 1e-9)
    inside_s = np.clip(result.last_s, from_s, until_s) - np.clip(result.first_s, from_s, until_s)
    return float((inside_s / decode_s * result.output_tokens).sum()) / (until_s - from_s)


def _statistics(stage: StageSummary) -> tuple[str, ...]:
    if stage.kind is StageKind.PREFILL:
        names: tuple[str, ...] = ("p50_ttft",)
    elif stage.kind is StageKind.STEPS:
        names = ("output_rate", "p50_tpot")
    elif stage.saturated:
        names = ("p50_tpot", "p99_tpot")
    elif stage.users:
        names = ("output_rate", "p50_tpot", "p99_tpot", "p50_ttft", "p99_ttft")
    else:
        names = ("p50_tpot", "p99_tpot", "p50_ttft", "p99_ttft")
    return tuple(name for name in names if _value(stage, name) > 0)


def _value(stage: StageSummary, name: str) -> float:
    if name == "output_rate":
        return stage.output_tokens_per_second
    return float(getattr(stage, name) or 0.0)


def _sampling_error(stage: StageSummary, name: str) -> float:
    """From the spread of a log-normal through median and P99."""
    kind = "ttft" if name.endswith("ttft") else "tpot"
    median, tail = _value(stage, f"p50_{kind}"), _value(stage, f"p99_{kind}")
    spread = max(_LEAST_SPREAD, float(np.log(tail / median)) / _Z99) if median > 0 and tail > 0 else _LEAST_SPREAD
    return (_P99_ERROR if name.startswith("p99") else _P50_ERROR) * spread / float(np.sqrt(stage.requests))


def _model_error(name: str) -> float:
    return MODEL_ERROR_OF_TAIL if name.startswith("p99") else MODEL_ERROR


def _scaled(tokens: Ints, mean: float) -> Ints:
    """The tokens with the stage's mean; none so long that the request would not fit any more."""
    if mean <= 0:
        return tokens
    scaled = np.rint(tokens * (mean / tokens.mean())).astype(np.int64)
    return np.asarray(np.clip(scaled, 1, max(1, int(tokens.max()))), dtype=np.int64)
