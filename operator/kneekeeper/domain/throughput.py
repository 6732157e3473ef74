"""The throughput of a loaded engine: output tokens per second with an interval, and what a stage proves of it.

An offline batch asks for nothing but tokens, so its proof is a measurement: a closed loop keeps the engine full, and
the mean rate is known by the method of batch means (Conway, Management Science 10, 1963; Law, Simulation Modeling and
Analysis, ch. 9). The stage is cut into windows of equal time, each as long as a request stays, so that neighbours
hardly depend on each other; the windows' rates give the mean, and Student's t its limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats as distributions

from kneekeeper.api.offered_load import Closed
from kneekeeper.api.stage import StageSpec
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.availability import availability_of
from kneekeeper.domain.certify import ALLOWED_SHARE
from kneekeeper.domain.samples import StageData
from kneekeeper.domain.stats import Interval

CONFIDENCE = 0.95
"""Of each limit by itself."""

FEWEST_WINDOWS, MOST_WINDOWS = 5, 20
"""With fewer the t quantile makes the limits useless; more make the windows shorter than they have to be."""

WIDEST = 0.10
"""Upper over lower limit, less one: a throughput that is known no better says little of a gain of a few percent."""

_MOST_PERCENT = 1_000_000


def is_of_throughput(spec: StageSpec, kind: StageKind) -> bool:
    """Whether a stage is a proof of throughput: a judged one, of a closed loop, without any latency target."""
    judged = kind in (StageKind.CERTIFY, StageKind.BASELINE)
    return judged and isinstance(spec.arrivals, Closed) and not any(slo.has_target for slo in spec.slos)


def output_rate(data: StageData) -> Interval | None:
    """Output tokens/s of the requests that succeeded, with one-sided 95% limits; `data` holds warm-up rows as well.

    From the end of the warm-up, when every user has had its first answer, to the last request that was sent. The
    tokens of a request are spread evenly between its first and its last one. None where that time is shorter than
    `FEWEST_WINDOWS` requests' stay.
    """
    ok = data.ok
    if not ok.any():
        return None
    first_s, last_s, tokens = data.first_s[ok], data.last_s[ok], data.output_tokens[ok].astype(np.float64)
    begin_s, end_s = max(data.warmup_s, float(last_s.min())), float(data.intended_s.max())
    stay_s = float((last_s - data.intended_s[ok]).mean())
    windows = min(MOST_WINDOWS, math.floor((end_s - begin_s) / stay_s)) if stay_s > 0 else 0
    if windows < FEWEST_WINDOWS:
        return None
    edges = np.linspace(begin_s, end_s, windows + 1)
    decode_s = np.maximum(last_s - first_s, 1e-9)
    # Tokens out by each edge; an answer of one chunk comes at once, when it ends.
    out = [float((tokens * np.clip((edge - first_s) / decode_s, 0.0, 1.0)).sum()) for edge in edges.tolist()]
    rates = np.diff(np.asarray(out)) / np.diff(edges)
    mean = float(rates.mean())
    quantile = float(distributions.t.ppf(CONFIDENCE, windows - 1))
    half = quantile * float(rates.std(ddof=1)) / math.sqrt(windows)
    return Interval(mean, max(0.0, mean - half), mean + half)


@dataclass(frozen=True)
class ThroughputProof:
    """What a stage proves: Pass where its throughput is known well enough and hardly a request failed."""

    verdict: Verdict
    message: str


def proof_of(
    data: StageData, rate: Interval | None, availability: float | None = None, *, unsteady: str = ""
) -> ThroughputProof:
    """The verdict on a stage; `data` is what came after warm-up, `unsteady` says why it was not steady at its end.

    Fail where more requests fail than `availability` allows, by the exact bound: tokens that are made at that price are
    no throughput of a job. Where none is promised, 1% may fail, and what was seen must not be more. No latency is
    judged.
    """
    failures, requests = int((~data.ok).sum()), len(data)
    held = availability_of(data.ok, 1 - ALLOWED_SHARE if availability is None else availability)
    if held.verdict is Verdict.FAIL:
        return ThroughputProof(Verdict.FAIL, held.message)
    if rate is None:
        return ThroughputProof(
            Verdict.INCONCLUSIVE,
            f"The stage was shorter than {FEWEST_WINDOWS} requests take one after the other, so its throughput has no "
            "interval. Let it run longer (spec.probe.budget.maxMeasureDuration).",
        )
    told = f"{told_rate(rate)} from {requests} requests, {failures} of which failed."
    if unsteady:
        return ThroughputProof(Verdict.INCONCLUSIVE, f"{told} {unsteady}")
    open_yet = held.verdict is Verdict.INCONCLUSIVE
    if open_yet and (availability is not None or failures > ALLOWED_SHARE * requests):
        return ThroughputProof(Verdict.INCONCLUSIVE, f"{told} {held.message}")
    if rate.ratio > 1 + WIDEST:
        return ThroughputProof(
            Verdict.INCONCLUSIVE, f"{told} The interval is wider than {WIDEST:.0%}: look for other work on the node."
        )
    return ThroughputProof(Verdict.PASS, told)


def told_rate(rate: Interval) -> str:
    """The rate with its limits, for people."""
    return f"{rate.estimate:.4g} output tokens/s ({rate.lower:.4g} to {rate.upper:.4g})"


def rate_of(stage: StageSummary) -> Interval | None:
    """The stored throughput of a stage; None where it has no interval."""
    lower, upper = stage.output_tokens_per_second_lower, stage.output_tokens_per_second_upper
    if lower is None or upper is None:
        return None
    return Interval(min(max(stage.output_tokens_per_second, lower), upper), lower, upper)


def gain_percent(choice: Interval, present: Interval) -> int:
    """Lower bound of choice / present - 1, in percent; negative where the present may be the better one.

    The lower limit of the one over the upper one of the other: wrong at most once in twenty times, since the errors
    of two stages would have to add up.
    """
    if present.upper <= 0:
        return _MOST_PERCENT
    return max(-100, min(_MOST_PERCENT, math.floor(100 * (choice.lower / present.upper - 1))))


def mean_output_tokens(stages: Sequence[StageSummary]) -> float:
    """Of all requests of the stages, so that the draw of a single one does not turn tokens into too many requests."""
    requests = sum(stage.requests for stage in stages)
    return sum(stage.output_tokens_mean * stage.requests for stage in stages) / max(1, requests)
