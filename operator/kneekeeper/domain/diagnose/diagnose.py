"""One engine, one window: every rule that applies is asked once."""

from __future__ import annotations

from kneekeeper.domain.diagnose.boundaries import boundaries
from kneekeeper.domain.diagnose.facts import Facts
from kneekeeper.domain.diagnose.finding import Diagnosis, Finding, Reason, Unjudged
from kneekeeper.domain.diagnose.gain_rules import little_gain, throughput_falls
from kneekeeper.domain.diagnose.latency_rules import buckets_hide_p99, prefill_jitter, tail_misses, workload_differs
from kneekeeper.domain.diagnose.limit_rules import kv_pressure, limits_contradict, outside_engine
from kneekeeper.domain.diagnose.load_rules import (
    arrivals_above_service,
    client_bound,
    cpu_bound,
    limits_too_small,
    past_the_knee,
    saturated_compute,
    too_little_load,
)
from kneekeeper.domain.diagnose.observation import DiagnosisObservation
from kneekeeper.domain.diagnose.rule import Rule

RULES: dict[Reason, Rule] = {
    Reason.OUTSIDE_ENGINE: outside_engine,
    Reason.ARRIVALS_ABOVE_SERVICE: arrivals_above_service,
    Reason.KV_PRESSURE: kv_pressure,
    Reason.THROUGHPUT_FALLS: throughput_falls,
    Reason.LIMITS_CONTRADICT: limits_contradict,
    Reason.LIMITS_TOO_SMALL: limits_too_small,
    Reason.PAST_THE_KNEE: past_the_knee,
    Reason.SATURATED_COMPUTE: saturated_compute,
    Reason.LITTLE_GAIN: little_gain,
    Reason.PREFILL_JITTER: prefill_jitter,
    Reason.CPU_BOUND: cpu_bound,
    Reason.CLIENT_BOUND: client_bound,
    Reason.TOO_LITTLE_LOAD: too_little_load,
    Reason.WORKLOAD_DIFFERS: workload_differs,
    Reason.TAIL_MISSES: tail_misses,
    Reason.BUCKETS_HIDE_P99: buckets_hide_p99,
}
"""In the order in which findings are told: what harms users most stands first."""


def diagnose(obs: DiagnosisObservation) -> Diagnosis:
    """All findings, what does not apply, and what could not be judged for want of metrics."""
    facts = Facts(obs)
    beyond = boundaries(facts)
    skipped = {reason for boundary in beyond for reason in boundary.skipped}
    answers = [rule(facts) for reason, rule in RULES.items() if reason not in skipped]
    return Diagnosis(
        findings=tuple(answer for answer in answers if isinstance(answer, Finding)),
        not_applicable=beyond,
        unjudged=tuple(answer for answer in answers if isinstance(answer, Unjudged)),
    )
