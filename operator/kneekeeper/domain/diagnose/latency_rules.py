"""Findings about latency: stalls, tails and their source, what buckets hide, a workload that is not the run's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kneekeeper.domain.diagnose import thresholds as at
from kneekeeper.domain.diagnose.facts import Facts
from kneekeeper.domain.diagnose.finding import Confidence, Evidence, Finding, Reason, Unit, Unjudged
from kneekeeper.domain.diagnose.reading import Counter, Family, Histogram
from kneekeeper.domain.diagnose.rule import NO_RUN, Answer, requests, seconds, share, tokens, unjudged
from kneekeeper.domain.stats import share_lower_bound, share_upper_bound


@dataclass(frozen=True)
class _Target:
    """A target with the histogram that it is judged in."""

    name: str
    seconds: float
    histogram: Histogram

    @property
    def missed(self) -> tuple[float, float]:
        """Shares of requests beyond it: surely (95% lower bound), and perhaps (95% upper bound)."""
        least, most = self.histogram.above(self.seconds)
        count = self.histogram.count
        return share_lower_bound(least, count), share_upper_bound(most, count)

    @property
    def surely_missed(self) -> bool:
        return self.histogram.count >= at.FEWEST_REQUESTS and self.missed[0] > at.SLO_MISS_SHARE

    @property
    def surely_held(self) -> bool:
        return self.histogram.count >= at.FEWEST_FOR_P99 and self.missed[1] <= at.SLO_MISS_SHARE


def _targets(facts: Facts) -> list[_Target]:
    slo = facts.obs.slo
    if slo is None:
        return []
    asked = (("TTFT", slo.ttft_s, Family.TTFT), ("TPOT", slo.tpot_s, Family.TPOT), ("E2E", slo.e2e_s, Family.E2E))
    found = [(name, target, facts.histogram(family)) for name, target, family in asked]
    return [_Target(name, target, h) for name, target, h in found if target is not None and h is not None]


def _unseen(facts: Facts) -> tuple[str, ...]:
    """Histograms that a target needs and that are not there."""
    slo = facts.obs.slo
    if slo is None:
        return ()
    asked = ((slo.ttft_s, Family.TTFT), (slo.tpot_s, Family.TPOT), (slo.e2e_s, Family.E2E))
    return tuple(str(family) for target, family in asked if target is not None and facts.histogram(family) is None)


def prefill_jitter(facts: Facts) -> Answer:
    """Steps that compute a piece of a prompt make the readers of all other answers wait."""
    gaps, running, measured = facts.histogram(Family.ITL), facts.running, facts.obs.measured
    if gaps is None or running is None or measured is None:
        return unjudged(facts, Reason.PREFILL_JITTER, Family.ITL, "num_requests_running", NO_RUN)
    decode_s = measured.step.step_s(running.mean, 0.0)
    stalled, _ = gaps.above(at.JITTER_STEPS * decode_s)
    preempted, finished = facts.gained(Counter.PREEMPTIONS) or 0.0, facts.finished or 0.0
    if gaps.count < at.FEWEST_FOR_P99 or stalled <= at.JITTER_SHARE * gaps.count or running.mean < 2:
        return None
    if any(target.name == "TPOT" and target.surely_held for target in _targets(facts)):
        return None  # readers get what they were promised
    if preempted > at.PREEMPTION_SHARE * finished:
        return None  # whoever is preempted stalls for that reason
    settings = facts.obs.settings
    budget_s = measured.step.step_s(running.mean, float(settings.max_num_batched_tokens))
    if budget_s < at.JITTER_STEPS * decode_s:
        return None  # no prefill that fits into a step is that long
    prompt = facts.prompt_tokens
    how = "Chunked prefill is off" if not settings.chunked_prefill else f"A full budget takes {budget_s * 1e3:.0f} ms"
    return Finding(
        Reason.PREFILL_JITTER,
        Confidence.HIGH,
        f"{stalled / gaps.count:.1%} of the gaps between tokens are longer than {at.JITTER_STEPS:.0f} decode steps "
        f"({decode_s * 1e3:.0f} ms each): prompts are computed between them. {how}.",
        ("Start it with --enable-chunked-prefill. " if not settings.chunked_prefill else "")
        + "Lower --max-num-batched-tokens, or send long prompts to replicas of their own.",
        (
            share("gaps that stall", stalled / gaps.count),
            seconds("decode step", decode_s),
            seconds("step with a full budget", budget_s),
            *((tokens("mean prompt", prompt),) if prompt is not None else ()),
        ),
    )


def tail_misses(facts: Facts) -> Answer:
    """The mean is well inside its target, the P99 is not; and where the tail comes from."""
    if facts.obs.slo is not None and _unseen(facts):
        return Unjudged(Reason.TAIL_MISSES, _unseen(facts))
    for target in _targets(facts):
        mean = target.histogram.mean
        if mean is None or mean > at.MEAN_IS_FINE * target.seconds or not target.surely_missed:
            continue
        source, step = _tail_source(facts, target)
        return Finding(
            Reason.TAIL_MISSES,
            Confidence.MEDIUM,
            f"Mean {target.name} is {mean * 1e3:.0f} ms, inside the target of {target.seconds * 1e3:.0f} ms, but at "
            f"least {target.missed[0]:.1%} of the requests miss it. {source}",
            step,
            (
                seconds(f"mean {target.name}", mean),
                seconds(f"target {target.name}", target.seconds),
                share("surely missed", target.missed[0]),
            ),
        )
    return None


def _tail_source(facts: Facts, target: _Target) -> tuple[str, str]:
    """What makes the tail, and what to do."""
    preempted, finished = facts.gained(Counter.PREEMPTIONS) or 0.0, facts.finished or 0.0
    if finished and preempted >= max(at.FEWEST_PREEMPTIONS, at.PREEMPTION_SHARE * finished):
        return "The tail is preemption.", "Lower --max-num-seqs, or give the KV cache more memory."
    queue = facts.histogram(Family.QUEUE)
    late = at.SLO_MISS_SHARE / 2
    if target.name != "TPOT" and queue is not None and queue.above(target.seconds / 2)[0] > late * queue.count:
        return "The tail is queueing: bursts fill the batch.", "Add replicas for the bursts, or smooth them."
    prompts, output = facts.histogram(Family.PROMPT_LENGTH), facts.output_tokens
    if target.name == "TPOT":
        return (
            "The tail is made by steps that prompts and full batches lengthen.",
            "Lower --max-num-batched-tokens and --max-num-seqs; a run finds by how much.",
        )
    bracket = prompts.quantile_bracket(0.99) if prompts is not None else None
    if bracket is not None and prompts is not None and prompts.mean and bracket[0] > 3 * prompts.mean:
        return (
            f"The tail is long prompts: one in a hundred has more than {bracket[0]:.0f} tokens.",
            "Give long prompts a target or replicas of their own.",
        )
    if target.name == "E2E" and output is not None:
        return f"The tail is long answers (mean {output:.0f} tokens).", "Set targets for TTFT and TPOT instead of E2E."
    return "Its source is not seen in the engine's metrics.", "Look at the API process and the node's CPU."


def buckets_hide_p99(facts: Facts) -> Answer:
    """The target lies inside a bucket that also holds the P99: the histogram cannot tell whether it holds."""
    for target in _targets(facts):
        count = target.histogram.count
        least, most = target.histogram.above(target.seconds)
        if count < at.FEWEST_FOR_P99 or least == most:
            continue
        if not least <= at.SLO_MISS_SHARE * count < most:
            continue
        bounds = target.histogram.bounds
        lower = max((b for b in bounds if b <= target.seconds), default=0.0)
        upper = min(b for b in bounds if b >= target.seconds)
        if lower > 0 and upper / lower < at.COARSE_BUCKET:
            continue
        told = "above the largest bucket" if math.isinf(upper) else f"between {lower:g} and {upper:g} s"
        return Finding(
            Reason.BUCKETS_HIDE_P99,
            Confidence.HIGH,
            f"The P99 {target.name} lies {told}, as the target of {target.seconds:g} s does: between "
            f"{least / count:.1%} and {most / count:.1%} of the requests miss it, the histogram cannot say more.",
            f"Start vLLM 0.32 or later with --custom-histogram-buckets that have {target.seconds:g} as a bound, or "
            "judge by client-side samples.",
            (
                seconds("target", target.seconds),
                share("surely missed", least / count),
                share("perhaps missed", most / count),
            ),
        )
    return None


def workload_differs(facts: Facts) -> Answer:
    """The SLO was certified, production misses it, and production is not what was measured."""
    measured = facts.obs.measured
    if measured is None or not any(target.surely_missed for target in _targets(facts)):
        return None
    differences: list[str] = []
    evidence: list[Evidence] = []
    for name, mean, then in (
        ("prompts", facts.prompt_tokens, measured.prompt_tokens),
        ("answers", facts.output_tokens, measured.output_tokens),
    ):
        if mean is not None and mean > at.LONGER * then:
            differences.append(f"{name} of {mean:.0f} instead of {then:.0f} tokens")
            evidence += [tokens(f"mean of {name}", mean), tokens(f"mean of {name} in the run", then)]
    hits = facts.hit_share
    if hits is not None and hits < measured.prefix_hit_share - at.HITS_LOST_SHARE:
        differences.append(f"{hits:.0%} prefix hits instead of {measured.prefix_hit_share:.0%}")
        evidence.append(share("prefix hits", hits))
    if measured.arrival_dispersion is None:
        differences.append("open-loop arrivals instead of a closed loop")
    else:
        burst = _burstiness(facts)
        if burst is not None and burst > at.BURSTIER * measured.arrival_dispersion:
            differences.append(f"bursts (variance over mean {burst:.1f} instead of {measured.arrival_dispersion:.1f})")
            evidence.append(Evidence("variance over mean of what ends", burst, Unit.COUNT))
    if not differences:
        return None
    return Finding(
        Reason.WORKLOAD_DIFFERS,
        Confidence.HIGH if len(evidence) else Confidence.MEDIUM,
        f"Production misses the SLO and is not what the run measured: {'; '.join(differences)}.",
        "Leave spec.workload out, so that it is learned, or declare what production has; then measure again.",
        tuple(evidence) or (requests("requests seen", facts.finished or 0.0),),
    )


def _burstiness(facts: Facts) -> float | None:
    """Variance over mean of arrivals between readings: what ended, and what more is in the engine."""
    ended, concurrency = facts.window.completions, facts.concurrency
    if concurrency is None or len(ended) < at.FEWEST_INTERVALS:
        return None
    arrived = np.array(ended) + np.diff(concurrency.values)
    mean = float(arrived.mean())
    return float(arrived.var(ddof=1)) / mean if mean > 0 else None
