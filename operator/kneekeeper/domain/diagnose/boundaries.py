"""Where knees and P99 targets mean nothing, and what to look at instead."""

from __future__ import annotations

from kneekeeper.domain.diagnose import thresholds as at
from kneekeeper.domain.diagnose.facts import Facts
from kneekeeper.domain.diagnose.finding import Boundary, NotApplicable, Reason
from kneekeeper.domain.diagnose.observation import Objective

_ALL_BUT_OUTSIDE = tuple(reason for reason in Reason if reason is not Reason.OUTSIDE_ENGINE)
_LATENCY = (
    Reason.PAST_THE_KNEE,
    Reason.ARRIVALS_ABOVE_SERVICE,
    Reason.PREFILL_JITTER,
    Reason.TAIL_MISSES,
    Reason.BUCKETS_HIDE_P99,
    Reason.WORKLOAD_DIFFERS,
)
_PER_TOKEN = (
    Reason.TOO_LITTLE_LOAD,
    Reason.SATURATED_COMPUTE,
    Reason.PREFILL_JITTER,
    Reason.LITTLE_GAIN,
    Reason.LIMITS_TOO_SMALL,
)


def boundaries(facts: Facts) -> tuple[NotApplicable, ...]:
    """All that hold here; each names the rules that it silences."""
    found: list[NotApplicable] = []
    if facts.window.engines > 1:
        found.append(
            NotApplicable(
                Boundary.REPLICA_TOTALS,
                f"These are totals of {facts.window.engines} engines; limits and the knee are of one.",
                "Read each engine's own series (by pod and the label engine).",
                _ALL_BUT_OUTSIDE,
            )
        )
    output = facts.output_tokens
    short = output is not None and output < at.SHORT_OUTPUT_TOKENS
    if _few(facts) or (not short and _single(facts)):
        found.append(
            NotApplicable(
                Boundary.LOW_RATE,
                "Single requests: hardly any batch forms, and too few requests ended for a P99.",
                "Judge the latency of a request alone (E2E, TTFT by prompt length); limits change nothing here.",
                _ALL_BUT_OUTSIDE,
            )
        )
    if facts.obs.objective is Objective.THROUGHPUT:
        found.append(
            NotApplicable(
                Boundary.OFFLINE_BATCH,
                "An offline batch has no reader who waits: a queue is what it wants.",
                "Look at tokens/s and cost; the highest throughput without preemption is the goal.",
                _LATENCY,
            )
        )
    if output is not None and short:
        found.append(
            NotApplicable(
                Boundary.SHORT_OUTPUTS,
                f"Answers have {output:.1f} tokens on average, as a classifier's: TPOT means nothing.",
                "Set a target for E2E or TTFT; capacity is prompt tokens/s.",
                _PER_TOKEN,
            )
        )
    return tuple(found)


def _few(facts: Facts) -> bool:
    return facts.finished is not None and facts.finished < at.FEWEST_REQUESTS


def _single(facts: Facts) -> bool:
    """Hardly ever two requests at once; of a classifier, whose requests last a step, that says nothing."""
    concurrency = facts.concurrency
    return concurrency is not None and concurrency.mean < at.SINGLE_REQUEST_CONCURRENCY and concurrency.largest <= 2
