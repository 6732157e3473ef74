"""Findings of two windows of one engine: what more load has brought."""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.domain.diagnose import thresholds as at
from kneekeeper.domain.diagnose.facts import Facts, WindowFacts
from kneekeeper.domain.diagnose.finding import Confidence, Finding, Reason
from kneekeeper.domain.diagnose.reading import Counter, Family
from kneekeeper.domain.diagnose.rule import Answer, requests, seconds, share, unjudged
from kneekeeper.domain.diagnose.window import Series


def little_gain(facts: Facts) -> Answer:
    """More concurrency than before, hardly more throughput, slower tokens."""
    pair = _both(facts)
    if pair is None:
        return None
    before, ratio, gain = pair.before, pair.running.mean / pair.running_before.mean, pair.gain
    tpot, tpot_before = facts.tpot_s, before.tpot_s
    if tpot is None or tpot_before is None:
        return unjudged(facts, Reason.LITTLE_GAIN, Family.TPOT, Family.ITL)
    if ratio < at.CONCURRENCY_RATIO or not at.LEAST_GAIN <= gain <= ratio**at.LITTLE_GAIN_ELASTICITY:
        return None
    if tpot < at.TPOT_RATIO * tpot_before:
        return None
    running, earlier = pair.running, pair.running_before
    return Finding(
        Reason.LITTLE_GAIN,
        Confidence.HIGH,
        f"{ratio:.1f} times as many requests in the batch gained {gain - 1:+.0%} throughput, and each token takes "
        f"{tpot / tpot_before:.1f} times as long.",
        f"Go back before the knee: --max-num-seqs near {earlier.mean:.0f}.",
        (
            requests("mean running before", earlier.mean),
            requests("mean running", running.mean),
            share("gain of throughput", gain - 1),
            seconds("mean time per output token before", tpot_before),
            seconds("mean time per output token", tpot),
        ),
    )


def throughput_falls(facts: Facts) -> Answer:
    """More demand than before, less throughput: work is done twice."""
    pair = _both(facts)
    concurrency, usage = facts.concurrency, facts.kv_usage
    if pair is None or concurrency is None:
        return None
    before, gain = pair.before, pair.gain
    earlier, preempted = before.concurrency, facts.gained(Counter.PREEMPTIONS)
    if earlier is None or earlier.mean <= 0 or concurrency.mean < at.FALL_CONCURRENCY_RATIO * earlier.mean:
        return None
    if gain > at.FALL_SHARE:
        return None
    recomputes = bool(preempted)
    return Finding(
        Reason.THROUGHPUT_FALLS,
        Confidence.HIGH if recomputes else Confidence.MEDIUM,
        f"Throughput fell by {1 - gain:.0%} while demand grew from {earlier.mean:.0f} to {concurrency.mean:.0f} "
        "requests" + (": preempted requests are computed again." if recomputes else "."),
        "Lower --max-num-seqs until preemptions end, or give the KV cache more memory."
        if recomputes
        else "Lower --max-num-seqs to where throughput was highest; look for throttling of the GPU.",
        (
            share("change of throughput", gain - 1),
            requests("mean concurrency before", earlier.mean),
            requests("mean concurrency", concurrency.mean),
            *((requests("preemptions", preempted),) if preempted is not None else ()),
            *((share("KV cache in use", usage.mean),) if usage is not None else ()),
        ),
        () if preempted is not None else (str(Counter.PREEMPTIONS),),
    )


@dataclass(frozen=True)
class _Pair:
    """Two windows of the same workload under different loads."""

    before: WindowFacts
    running_before: Series
    running: Series
    gain: float
    """Throughput over that of the earlier window."""


def _both(facts: Facts) -> _Pair | None:
    """None without an earlier window, and where the workload is another."""
    before, running = facts.before, facts.running
    if before is None or running is None or before.running is None or before.running.mean <= 0:
        return None
    if not facts.tokens_per_s or not before.tokens_per_s:
        return None
    now, then = facts.computed_per_output_token, before.computed_per_output_token
    if now is None or not then or not 1 / at.SAME_LENGTHS <= now / then <= at.SAME_LENGTHS:
        return None
    return _Pair(before, before.running, running, facts.tokens_per_s / before.tokens_per_s)
