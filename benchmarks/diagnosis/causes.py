"""Scenarios with one cause or two: every finding on its own and beside others, on different engines."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.diagnosis.replica import Faults
from benchmarks.diagnosis.scenario import Kind, Load, Scenario
from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import Reason as R

ONE, TWO = Kind.ONE_CAUSE, Kind.TWO_CAUSES
VLLM_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0)
"""vLLM's own bounds, where the scenario is about them."""


def _set(*reasons: R) -> frozenset[R]:
    return frozenset(reasons)


LONG_PROMPTS = Load(0.5, long_share=0.12, long_tokens=6000)
SLOW_HOST = {0: Faults(host_ms=60), 1: Faults(host_ms=40), 2: Faults(host_ms=90)}
THRASH = Load(1.0, closed=True, output_factor=3.0, prompt_factor=0.5, sigma=0.2)
SLOW_API = {0: Faults(api_ms=180), 1: Faults(api_ms=110), 2: Faults(api_ms=400)}

ONE_CAUSE = (
    Scenario("hardly any load", ONE, Load(0.15), _set(R.TOO_LITTLE_LOAD)),
    Scenario("hardly any load on the middle card", ONE, Load(0.16), _set(R.TOO_LITTLE_LOAD), engine=1),
    Scenario("a pool of few clients", ONE, Load(0.2, closed=True), _set(R.CLIENT_BOUND)),
    Scenario("a pool of clients on the large model", ONE, Load(0.4, closed=True), _set(R.CLIENT_BOUND), engine=2),
    Scenario("slow host", ONE, Load(0.5), _set(R.CPU_BOUND), faults=SLOW_HOST[0]),
    Scenario("slow host on the middle card", ONE, Load(0.45), _set(R.CPU_BOUND), engine=1, faults=SLOW_HOST[1]),
    Scenario("slow API process", ONE, Load(0.5), _set(R.CPU_BOUND), faults=SLOW_API[0]),
    Scenario("slow API process, middle card", ONE, Load(0.5), _set(R.CPU_BOUND), engine=1, faults=SLOW_API[1]),
    Scenario("few sequences", ONE, Load(0.35, closed=True), _set(R.LIMITS_TOO_SMALL), seqs_of_knee=0.2),
    Scenario("few sequences, large model", ONE, Load(0.6, closed=True), _set(R.LIMITS_TOO_SMALL), engine=2,
             seqs_of_knee=0.3),
    Scenario("saturated", ONE, Load(1.6, closed=True), _set(R.SATURATED_COMPUTE)),
    Scenario("saturated, large model", ONE, Load(1.45, closed=True), _set(R.SATURATED_COMPUTE), engine=2),
    Scenario("long prompts under a large budget", ONE, LONG_PROMPTS, _set(R.PREFILL_JITTER), budget=8192),
    Scenario("long prompts, middle card", ONE, LONG_PROMPTS, _set(R.PREFILL_JITTER), engine=1, budget=8192),
    Scenario("no chunked prefill", ONE, LONG_PROMPTS, _set(R.PREFILL_JITTER), budget=8192, chunked=False),
    Scenario("full batch near the knee", ONE, Load(2.2, closed=True), _set(R.PAST_THE_KNEE), seqs_of_knee=0.9),
    Scenario("full batch near the knee, large model", ONE, Load(1.8, closed=True), _set(R.PAST_THE_KNEE), engine=2,
             seqs_of_knee=0.75),
    Scenario("small token budget", ONE, Load(1.0, closed=True), _set(R.LIMITS_CONTRADICT), max_num_seqs=128,
             budget=128),
    Scenario("small token budget, large model", ONE, Load(1.2, closed=True), _set(R.LIMITS_CONTRADICT), engine=2,
             max_num_seqs=96, budget=128),
    Scenario("twice the requests", ONE, Load(1.9, closed=True), _set(R.LITTLE_GAIN), _set(R.SATURATED_COMPUTE),
             seqs_of_knee=2.5, before=Load(0.9, closed=True)),
    Scenario("twice the requests, middle card", ONE, Load(1.9, closed=True), _set(R.LITTLE_GAIN),
             _set(R.SATURATED_COMPUTE), engine=1, seqs_of_knee=2.5, before=Load(0.9, closed=True)),
    Scenario("too many arrivals", ONE, Load(1.3), _set(R.ARRIVALS_ABOVE_SERVICE), _set(R.PAST_THE_KNEE),
             seqs_of_knee=1.0),
    Scenario("too many arrivals, middle card", ONE, Load(1.25), _set(R.ARRIVALS_ABOVE_SERVICE), _set(R.PAST_THE_KNEE),
             engine=1, seqs_of_knee=0.8),
    Scenario("KV cache too small", ONE, Load(1.0, closed=True, output_factor=3.0, prompt_factor=0.5),
             _set(R.KV_PRESSURE), kv_tokens=12_000),
    Scenario("KV cache too small, large model", ONE, Load(1.0, closed=True, output_factor=3.0, prompt_factor=0.5),
             _set(R.KV_PRESSURE), engine=2, kv_tokens=12_000),
    Scenario("longer prompts than measured", ONE, Load(0.7, prompt_factor=2.5), _set(R.WORKLOAD_DIFFERS),
             slo=Slo(tpot_s=0.045)),
    Scenario("prefix hits lost", ONE, Load(0.7), _set(R.WORKLOAD_DIFFERS), slo=Slo(tpot_s=0.045), run_hit_share=0.6),
    Scenario("bursts", ONE, Load(0.6, burst_size=8), _set(R.WORKLOAD_DIFFERS), _set(R.TAIL_MISSES),
             slo=Slo(ttft_s=0.3)),
    Scenario("planned with a closed loop", ONE, Load(0.8), _set(R.WORKLOAD_DIFFERS), slo=Slo(tpot_s=0.055),
             run_arrivals=None),
    Scenario("a tail of bursts", ONE, Load(0.6, burst_size=4), _set(R.TAIL_MISSES), slo_over_p99=0.7,
             run_arrivals=8.0),
    Scenario("a tail of long prompts", ONE, Load(0.5, prompt_factor=0.7, long_share=0.03, long_tokens=3000),
             _set(R.TAIL_MISSES), _set(R.PREFILL_JITTER), engine=1, slo=Slo(ttft_s=0.2)),
    Scenario("P99 inside a bucket", ONE, Load(0.5), _set(R.BUCKETS_HIDE_P99), slo=Slo(ttft_s=0.2),
             buckets_s=VLLM_TTFT_S),
    Scenario("P99 inside a bucket, middle card", ONE, Load(0.6), _set(R.BUCKETS_HIDE_P99), engine=1,
             slo=Slo(ttft_s=0.17), buckets_s=VLLM_TTFT_S),
    Scenario("slow network", ONE, Load(0.5), _set(R.OUTSIDE_ENGINE), faults=Faults(network_ms=300), client=True),
    Scenario("unfair router", ONE, Load(0.6), _set(R.OUTSIDE_ENGINE),
             _set(R.PAST_THE_KNEE, R.ARRIVALS_ABOVE_SERVICE), seqs_of_knee=0.6, router_share=0.8),
)  # fmt: skip

TWO_CAUSES = (
    Scenario("overload and long prompts", TWO, Load(1.4, long_share=0.12, long_tokens=6000),
             _set(R.ARRIVALS_ABOVE_SERVICE, R.PREFILL_JITTER), _set(R.PAST_THE_KNEE, R.SATURATED_COMPUTE),
             seqs_of_knee=1.0, budget=8192),
    Scenario("overload and a small KV cache", TWO, Load(1.3, output_factor=3.0, prompt_factor=0.5),
             _set(R.ARRIVALS_ABOVE_SERVICE, R.KV_PRESSURE), engine=1, kv_tokens=12_000),
    Scenario("overload and a slow host", TWO, Load(1.1), _set(R.ARRIVALS_ABOVE_SERVICE, R.CPU_BOUND),
             _set(R.PAST_THE_KNEE), seqs_of_knee=0.6, faults=SLOW_HOST[0]),
    Scenario("few sequences and a slow network", TWO, Load(0.4, closed=True),
             _set(R.LIMITS_TOO_SMALL, R.OUTSIDE_ENGINE), engine=1, seqs_of_knee=0.2, client=True,
             faults=Faults(network_ms=1500)),
    Scenario("a pool of clients and a slow network", TWO, Load(0.3, closed=True),
             _set(R.CLIENT_BOUND, R.OUTSIDE_ENGINE), client=True, faults=Faults(network_ms=250)),
    Scenario("little load and a slow network", TWO, Load(0.15), _set(R.TOO_LITTLE_LOAD, R.OUTSIDE_ENGINE), engine=2,
             client=True, faults=Faults(network_ms=500)),
    Scenario("overload and a small token budget", TWO, Load(1.0), _set(R.ARRIVALS_ABOVE_SERVICE, R.LIMITS_CONTRADICT),
             max_num_seqs=128, budget=128),
    Scenario("overload and few sequences", TWO, Load(0.9), _set(R.ARRIVALS_ABOVE_SERVICE, R.LIMITS_TOO_SMALL),
             seqs_of_knee=0.3),
    Scenario("overload and few sequences, large model", TWO, Load(0.95),
             _set(R.ARRIVALS_ABOVE_SERVICE, R.LIMITS_TOO_SMALL), engine=2, seqs_of_knee=0.35),
    Scenario("a pool of clients and a slow host", TWO, Load(0.35, closed=True), _set(R.CLIENT_BOUND, R.CPU_BOUND),
             faults=SLOW_HOST[0]),
    Scenario("slow API process and failing probes", TWO, Load(0.52), _set(R.CPU_BOUND, R.OUTSIDE_ENGINE),
             faults=Faults(api_ms=185, probe_timeout_s=1.0)),
    Scenario("saturated by long prompts", TWO, Load(1.5, closed=True, long_share=0.12, long_tokens=6000),
             _set(R.SATURATED_COMPUTE, R.PREFILL_JITTER), engine=1, budget=8192),
    Scenario("longer prompts and overload", TWO, Load(1.3, prompt_factor=2.0),
             _set(R.WORKLOAD_DIFFERS, R.ARRIVALS_ABOVE_SERVICE), _set(R.PAST_THE_KNEE), engine=1, seqs_of_knee=0.9,
             slo=Slo(ttft_s=1.0)),
    Scenario("longer answers and few sequences", TWO, Load(0.9, output_factor=2.0),
             _set(R.WORKLOAD_DIFFERS, R.LIMITS_TOO_SMALL), _set(R.ARRIVALS_ABOVE_SERVICE), seqs_of_knee=0.4,
             slo=Slo(ttft_s=1.0)),
    Scenario("twice the requests, saturated", TWO, Load(2.0, closed=True), _set(R.LITTLE_GAIN, R.SATURATED_COMPUTE),
             engine=2, seqs_of_knee=2.5, before=Load(0.95, closed=True)),
    Scenario("thrashing", TWO, replace(THRASH, users=60), _set(R.KV_PRESSURE, R.THROUGHPUT_FALLS), engine=3,
             max_num_seqs=100, kv_tokens=3200, before=replace(THRASH, users=9)),
    Scenario("thrashing in a smaller cache", TWO, replace(THRASH, users=50),
             _set(R.KV_PRESSURE, R.THROUGHPUT_FALLS), engine=3, max_num_seqs=80, kv_tokens=2800,
             before=replace(THRASH, users=8)),
    Scenario("a pool of clients, P99 inside a bucket", TWO, Load(0.3, closed=True),
             _set(R.CLIENT_BOUND, R.BUCKETS_HIDE_P99), slo=Slo(ttft_s=0.2), buckets_s=VLLM_TTFT_S),
)  # fmt: skip
