"""Findings about limits that contradict each other, the KV cache, and what lies outside of the engine."""

from __future__ import annotations

from kneekeeper.domain.diagnose import thresholds as at
from kneekeeper.domain.diagnose.facts import Facts
from kneekeeper.domain.diagnose.finding import Confidence, Evidence, Finding, Reason, Unit
from kneekeeper.domain.diagnose.reading import Counter, Family, Gauge
from kneekeeper.domain.diagnose.rule import Answer, requests, seconds, share, tokens, unjudged


def limits_contradict(facts: Facts) -> Answer:
    """Many sequences under a small token budget: steps are full of tokens, everything queues."""
    settings = facts.obs.settings
    if settings.max_num_batched_tokens > at.CONTRADICTION_TOKENS_PER_SEQUENCE * settings.max_num_seqs:
        return None
    step_s, outputs = facts.mean(Family.ITL), facts.gained(Counter.GENERATION_TOKENS)
    step_s = facts.tpot_s if step_s is None else step_s
    per_output, prefill_s = facts.computed_per_output_token, facts.mean(Family.PREFILL)
    if step_s is None or outputs is None or per_output is None or facts.waiting is None:
        needed = (Family.ITL, Family.TPOT, Counter.GENERATION_TOKENS, Counter.PROMPT_TOKENS, Gauge.WAITING)
        return unjudged(facts, Reason.LIMITS_CONTRADICT, *needed)
    in_step = outputs * (1 + per_output) / facts.window.duration_s * step_s
    full = in_step / settings.max_num_batched_tokens
    queues = facts.waiting.surely_above(at.FEWEST_WAITING) or (prefill_s is not None and prefill_s > 10 * step_s)
    if full < at.BUDGET_FULL_SHARE or not queues:
        return None
    return Finding(
        Reason.LIMITS_CONTRADICT,
        Confidence.HIGH,
        f"--max-num-seqs {settings.max_num_seqs} allows more than --max-num-batched-tokens "
        f"{settings.max_num_batched_tokens} can feed: a step computes {in_step:.0f} tokens, {full:.0%} of the budget, "
        "so prompts queue and throughput stays.",
        "Raise --max-num-batched-tokens to several times --max-num-seqs, or lower --max-num-seqs.",
        (
            tokens("tokens in a step", in_step),
            tokens("token budget", settings.max_num_batched_tokens),
            requests("mean waiting", facts.waiting.mean),
        ),
    )


def kv_pressure(facts: Facts) -> Answer:
    """The KV cache is full: requests are preempted, or wait although the batch has places."""
    preempted, finished = facts.gained(Counter.PREEMPTIONS), facts.finished
    usage, running, waiting = facts.kv_usage, facts.running, facts.waiting
    if preempted is None and usage is None:
        return unjudged(facts, Reason.KV_PRESSURE, Counter.PREEMPTIONS, Gauge.KV_USAGE)
    preempts = preempted is not None and preempted >= max(
        at.FEWEST_PREEMPTIONS, at.PREEMPTION_SHARE * (finished or 0.0)
    )
    holds_back = (
        usage is not None
        and running is not None
        and waiting is not None
        and usage.surely_above(at.KV_FULL_SHARE)
        and waiting.surely_above(at.FEWEST_WAITING)
        and running.mean < at.FULL_BATCH_SHARE * facts.full_batch
    )
    if not preempts and not holds_back:
        return None
    what = f"{preempted:.0f} preemptions of {finished or 0:.0f} requests" if preempts else "No request is preempted"
    fullness = f"{usage.mean:.0%} of the KV cache are in use" if usage is not None else "its use is not known"
    return Finding(
        Reason.KV_PRESSURE,
        Confidence.HIGH if usage is not None and preempted is not None else Confidence.MEDIUM,
        f"{what}, and {fullness}"
        + (f"; {waiting.mean:.0f} requests wait for blocks." if holds_back and waiting else "."),
        "Lower --max-num-seqs to what fits, raise --gpu-memory-utilization, use an FP8 KV cache, or shorten "
        "--max-model-len.",
        (
            *((requests("preemptions", preempted),) if preempted is not None else ()),
            *((share("KV cache in use", usage.mean),) if usage is not None else ()),
        ),
        tuple(
            str(name) for name, value in ((Counter.PREEMPTIONS, preempted), (Gauge.KV_USAGE, usage)) if value is None
        ),
    )


def outside_engine(facts: Facts) -> Answer:
    """Clients wait longer than the engine, the kubelet's probes fail while it works, or a router is unfair."""
    outside, ttft_s, finished = facts.obs.outside, facts.mean(Family.TTFT), facts.finished
    if outside.probe_failures and finished:
        return Finding(
            Reason.OUTSIDE_ENGINE,
            Confidence.HIGH,
            f"{outside.probe_failures} probes of the kubelet failed while the engine served {finished:.0f} requests: "
            "it is busy, not dead.",
            "Give liveness and readiness probes a timeout of 5 s or more and several failures, or more CPU.",
            (Evidence("probe failures", outside.probe_failures, Unit.COUNT), requests("requests served", finished)),
        )
    client_s = outside.client_ttft_mean_s
    if client_s is not None and ttft_s is not None:
        beyond_s = client_s - ttft_s
        if beyond_s > max(at.OUTSIDE_LEAST_S, at.OUTSIDE_SHARE * client_s):
            return Finding(
                Reason.OUTSIDE_ENGINE,
                Confidence.HIGH,
                f"Clients wait {client_s * 1e3:.0f} ms for the first token, the engine says {ttft_s * 1e3:.0f} ms: "
                "the rest passes in the network, a proxy that buffers, or the router.",
                "Measure from inside the cluster against the pod's address, then through each hop.",
                (seconds("mean TTFT of clients", client_s), seconds("mean TTFT of the engine", ttft_s)),
            )
    peers, concurrency = outside.peer_concurrency, facts.concurrency
    if peers and concurrency is not None and facts.waiting is not None:
        mean = sum(peers) / len(peers)
        if concurrency.mean > at.IMBALANCE * mean and facts.waiting.surely_above(at.FEWEST_WAITING):
            return Finding(
                Reason.OUTSIDE_ENGINE,
                Confidence.MEDIUM,
                f"This replica holds {concurrency.mean:.0f} requests and makes some wait, the others {mean:.0f} on "
                "average: the router spreads unevenly.",
                "Let the router look at load (least requests, or an endpoint picker), and check sticky sessions.",
                (requests("mean concurrency", concurrency.mean), requests("mean of the other replicas", mean)),
            )
    return None
