"""Findings about load and throughput: too little, held back, beyond the knee, beyond the service rate."""

from __future__ import annotations

import math

from kneekeeper.domain.diagnose import thresholds as at
from kneekeeper.domain.diagnose.facts import Facts
from kneekeeper.domain.diagnose.finding import Confidence, Evidence, Finding, Reason, Unit, Unjudged
from kneekeeper.domain.diagnose.reading import Counter, Family, Gauge
from kneekeeper.domain.diagnose.rule import (
    GPU_UTILIZATION,
    NO_RUN,
    SM_ACTIVE,
    Answer,
    requests,
    seconds,
    share,
    tokens_per_s,
    unjudged,
)

_GAUGES = (Gauge.RUNNING, Gauge.WAITING)
_TOKENS = (Counter.PROMPT_TOKENS, Counter.GENERATION_TOKENS)


def too_little_load(facts: Facts) -> Answer:
    """Concurrency far below the knee, and nobody waits."""
    concurrency, waiting, curve = facts.concurrency, facts.waiting, facts.curve
    if concurrency is None or waiting is None or curve is None:
        return unjudged(facts, Reason.TOO_LITTLE_LOAD, *_GAUGES, *_TOKENS, NO_RUN)
    if not concurrency.surely_below(at.LITTLE_LOAD_SHARE_OF_KNEE * curve.knee) or waiting.mean >= at.FEWEST_WAITING:
        return None
    if client_bound(facts) is not None:
        return None  # the same picture with a known cause
    return Finding(
        Reason.TOO_LITTLE_LOAD,
        Confidence.HIGH,
        f"{concurrency.mean:.1f} requests at once, the knee is at {curve.knee:.0f}: throughput is low because little "
        "is asked.",
        "Run fewer replicas, or send this engine more of the traffic.",
        (requests("mean concurrency", concurrency.mean), requests("knee", curve.knee), *_gpu(facts)),
        _gpu_missing(facts),
    )


def client_bound(facts: Facts) -> Answer:
    """A pool of clients that each wait for their answer: concurrency stands still although the engine has room."""
    concurrency, waiting, curve = facts.concurrency, facts.waiting, facts.curve
    if concurrency is None or waiting is None:
        return unjudged(facts, Reason.CLIENT_BOUND, *_GAUGES)
    dispersion = concurrency.dispersion
    if dispersion is None or len(concurrency.values) < at.FEWEST_POOL_READINGS or concurrency.mean < 2:
        return None
    room = at.POOL_SHARE_OF_KNEE * min(facts.full_batch, curve.knee if curve is not None else math.inf)
    if dispersion > at.POOL_DISPERSION or concurrency.mean >= room or waiting.mean >= at.FEWEST_WAITING:
        return None
    return Finding(
        Reason.CLIENT_BOUND,
        Confidence.HIGH if curve is not None else Confidence.MEDIUM,
        f"Concurrency stays at {concurrency.mean:.0f} requests while the engine has room: a fixed pool of clients or "
        "connections sends the next request only after an answer.",
        "Raise the number of workers, connections or concurrent requests at the clients or the gateway.",
        (
            requests("mean concurrency", concurrency.mean),
            Evidence("variance over mean of concurrency", dispersion, Unit.COUNT),
            *_gpu(facts),
        ),
        _gpu_missing(facts),
    )


def cpu_bound(facts: Facts) -> Answer:
    """The GPU waits for the host between steps, or requests wait for the API process."""
    slow_api = _slow_api(facts)
    if slow_api is not None:
        return slow_api
    gpu = facts.obs.gpu.utilization if facts.obs.gpu is not None else None
    if gpu is None:
        return Unjudged(Reason.CPU_BOUND, (GPU_UTILIZATION,))
    running, tpot_s, curve = facts.running, facts.tpot_s, facts.curve
    if running is None or tpot_s is None or curve is None:
        return unjudged(facts, Reason.CPU_BOUND, Gauge.RUNNING, Family.TPOT, Family.ITL, *_TOKENS, NO_RUN)
    expected_s = curve.step_s(running.mean)
    if gpu >= at.HOST_GPU_UTILIZATION or running.smallest < 1 or tpot_s < at.HOST_SLOWDOWN * expected_s:
        return None
    return Finding(
        Reason.CPU_BOUND,
        Confidence.HIGH,
        f"There is always a batch, but the GPU is busy for only {gpu:.0%} of the time, and a step takes "
        f"{tpot_s / expected_s:.1f} times as long as measured: it waits for the host.",
        "Give the pod more CPU (requests and limits), look for CPU throttling and busy neighbours on the node.",
        (
            share("GPU utilization", gpu),
            seconds("mean time per output token", tpot_s),
            seconds("as the run measured", expected_s),
        ),
    )


def _slow_api(facts: Facts) -> Finding | None:
    ttft, queue, prefill = (facts.mean(family) for family in (Family.TTFT, Family.QUEUE, Family.PREFILL))
    waiting = facts.waiting
    if ttft is None or queue is None or prefill is None or waiting is None or waiting.mean >= at.FEWEST_WAITING:
        return None  # in a queue that grows, the ones that ended had waited less than the ones that begin
    delay_s = ttft - queue - prefill
    if delay_s < max(at.API_DELAY_LEAST_S, at.API_DELAY_SHARE_OF_TTFT * ttft):
        return None
    return Finding(
        Reason.CPU_BOUND,
        Confidence.HIGH,
        f"{delay_s * 1e3:.0f} of {ttft * 1e3:.0f} ms of mean TTFT pass before the scheduler sees a request: the API "
        "process is short of CPU.",
        "Give the pod more CPU, start more API processes (--api-server-count), or shorten templates and tokenisation.",
        (
            seconds("mean TTFT", ttft),
            seconds("mean queue time", queue),
            seconds("mean prefill time", prefill),
            *_gpu(facts),
        ),
        _gpu_missing(facts),
    )


def saturated_compute(facts: Facts) -> Answer:
    """The batch is beyond the knee and throughput at its limit: more requests only make every token slower."""
    running, curve, throughput = facts.running, facts.curve, facts.tokens_per_s
    if running is None or curve is None or throughput is None:
        return unjudged(facts, Reason.SATURATED_COMPUTE, Gauge.RUNNING, *_TOKENS, NO_RUN)
    beyond = running.surely_above(at.PAST_KNEE * curve.knee)
    if not beyond or throughput < at.PLATEAU_SHARE * curve.limit_tokens_per_s:
        return None
    sm_active = facts.obs.gpu.sm_active if facts.obs.gpu is not None else None
    return Finding(
        Reason.SATURATED_COMPUTE,
        Confidence.HIGH if sm_active is not None else Confidence.MEDIUM,
        f"{running.mean:.0f} requests in the batch, the knee is at {curve.knee:.0f}, and throughput is at "
        f"{throughput / curve.limit_tokens_per_s:.0%} of its limit: the GPU's compute is used up.",
        f"Lower --max-num-seqs towards {curve.knee:.0f} for a better TPOT at nearly the same throughput; for more "
        "throughput add replicas.",
        (
            requests("mean running", running.mean),
            requests("knee", curve.knee),
            tokens_per_s("throughput", throughput),
            tokens_per_s("limit of throughput", curve.limit_tokens_per_s),
            *((share("SM active", sm_active),) if sm_active is not None else ()),
        ),
        () if sm_active is not None else (SM_ACTIVE,),
    )


def past_the_knee(facts: Facts) -> Answer:
    """The batch is full at a cap near the knee: TPOT stays, TTFT takes all of the load."""
    running, waiting, curve = facts.running, facts.waiting, facts.curve
    queue_s, ttft_s = facts.mean(Family.QUEUE), facts.mean(Family.TTFT)
    if running is None or waiting is None or queue_s is None or ttft_s is None:
        return unjudged(facts, Reason.PAST_THE_KNEE, *_GAUGES, Family.QUEUE, Family.TTFT)
    if not _full(facts) or (curve is not None and facts.full_batch < at.SMALL_LIMIT_SHARE_OF_KNEE * curve.knee):
        return None
    if queue_s < at.QUEUE_SHARE_OF_TTFT * ttft_s:
        return None
    return Finding(
        Reason.PAST_THE_KNEE,
        Confidence.HIGH if curve is not None else Confidence.LOW,
        f"All {facts.full_batch} places of the batch are taken and {waiting.mean:.0f} requests wait: "
        f"{queue_s:.2f} of {ttft_s:.2f} s of mean TTFT are queue. TPOT stays flat because of the cap.",
        "Add replicas or shed load; a higher --max-num-seqs would move the wait into every token.",
        (
            requests("mean waiting", waiting.mean),
            seconds("mean queue time", queue_s),
            seconds("mean TTFT", ttft_s),
            requests("max_num_seqs", facts.full_batch),
        ),
        () if curve is not None else (NO_RUN,),
    )


def limits_too_small(facts: Facts) -> Answer:
    """The batch is full far below the knee, while the KV cache has room."""
    running, waiting, curve, usage = facts.running, facts.waiting, facts.curve, facts.kv_usage
    if running is None or waiting is None or curve is None:
        return unjudged(facts, Reason.LIMITS_TOO_SMALL, *_GAUGES, *_TOKENS, NO_RUN)
    if not _full(facts) or facts.full_batch >= at.SMALL_LIMIT_SHARE_OF_KNEE * curve.knee:
        return None
    if usage is not None and usage.largest >= at.KV_FULL_SHARE:
        return None
    return Finding(
        Reason.LIMITS_TOO_SMALL,
        Confidence.HIGH if usage is not None else Confidence.MEDIUM,
        f"--max-num-seqs {facts.full_batch} is reached and {waiting.mean:.0f} requests wait, but the knee is at "
        f"{curve.knee:.0f}: the limit holds throughput back, not the GPU.",
        f"Raise --max-num-seqs towards {curve.knee:.0f}, as far as the TPOT target allows; a run finds where.",
        (
            requests("mean running", running.mean),
            requests("mean waiting", waiting.mean),
            requests("knee", curve.knee),
            *_gpu(facts),
        ),
        (*(() if usage is not None else (str(Gauge.KV_USAGE),)), *_gpu_missing(facts)),
    )


def arrivals_above_service(facts: Facts) -> Answer:
    """The queue grows by more than chance: nothing but less load or more capacity ends it."""
    waiting, finished = facts.waiting, facts.finished
    if waiting is None or finished is None:
        return unjudged(facts, Reason.ARRIVALS_ABOVE_SERVICE, Gauge.WAITING, Family.E2E)
    if waiting.growth < max(at.FEWEST_QUEUE_GROWTH, at.QUEUE_GROWTH_SIGMAS * math.sqrt(finished)):
        return None
    duration_s = facts.window.duration_s
    growth, service = waiting.growth / duration_s, finished / duration_s
    left = max(0.0, facts.obs.client_timeout_s * service - waiting.values[-1]) / growth
    return Finding(
        Reason.ARRIVALS_ABOVE_SERVICE,
        Confidence.HIGH,
        f"{service + growth:.1f} requests/s arrive and {service:.1f} are served: the queue grows by {growth:.2f}/s. "
        f"In {left:.0f} s new requests wait longer than {facts.obs.client_timeout_s:.0f} s.",
        f"Add capacity for at least {(service + growth) / service if service else 2:.1f} times the present, or let "
        "the gateway reject what cannot be served.",
        (
            Evidence("growth of the queue", growth, Unit.PER_SECOND),
            Evidence("service rate", service, Unit.PER_SECOND),
            seconds("until timeouts", left),
        ),
    )


def _full(facts: Facts) -> bool:
    running, waiting = facts.running, facts.waiting
    return (
        running is not None
        and waiting is not None
        and running.mean >= at.FULL_BATCH_SHARE * facts.full_batch
        and waiting.surely_above(at.FEWEST_WAITING)
    )


def _gpu(facts: Facts) -> tuple[Evidence, ...]:
    gpu = facts.obs.gpu
    return () if gpu is None or gpu.utilization is None else (share("GPU utilization", gpu.utilization),)


def _gpu_missing(facts: Facts) -> tuple[str, ...]:
    return () if _gpu(facts) else (GPU_UTILIZATION,)
