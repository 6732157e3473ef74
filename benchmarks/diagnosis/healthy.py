"""Scenarios in which nothing is wrong, plainly or within 10% of where a rule would speak; and where metrics are
missing or renamed, and where the method does not apply."""

from __future__ import annotations

from benchmarks.diagnosis.causes import LONG_PROMPTS, SLOW_HOST, VLLM_TTFT_S
from benchmarks.diagnosis.replica import Faults
from benchmarks.diagnosis.scenario import Kind, Load, Scenario
from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import Boundary, Objective
from kneekeeper.domain.diagnose import Reason as R

HEALTHY = (
    Scenario("half of the knee", Kind.HEALTHY, Load(0.5), slo_over_p99=1.5),
    Scenario("half of the knee, middle card", Kind.HEALTHY, Load(0.5), engine=1, slo_over_p99=1.5),
    Scenario("half of the knee, large model", Kind.HEALTHY, Load(0.5), engine=2, slo_over_p99=1.5),
    Scenario("a quiet hour", Kind.HEALTHY, Load(0.35), seqs_of_knee=1.0),
    Scenario("a busy hour", Kind.HEALTHY, Load(0.8), seqs_of_knee=1.0, client=True),
    Scenario("long answers", Kind.HEALTHY, Load(0.6, output_factor=3.0), engine=1),
    Scenario("mild bursts", Kind.HEALTHY, Load(0.5, burst_size=3.0), slo_over_p99=2.0),
)

_NEAR = Kind.NEAR
NEAR = (
    Scenario("concurrency just above a tenth of the knee", _NEAR, Load(0.385), seqs_of_knee=1.0),
    Scenario("a tenth of the knee, middle card", _NEAR, Load(0.35), engine=1, seqs_of_knee=1.0),
    Scenario("a pool near the knee", _NEAR, Load(0.75, closed=True)),
    Scenario("a pool near the knee, large model", _NEAR, Load(0.74, closed=True), engine=2),
    Scenario("a batch at 105% of the knee", _NEAR, Load(1.05, closed=True)),
    Scenario("a batch at 106% of the knee, middle card", _NEAR, Load(1.06, closed=True), engine=1),
    Scenario("a small batch almost full", _NEAR, Load(0.62), seqs_of_knee=0.33),
    Scenario("a batch near the knee almost full", _NEAR, Load(0.90), seqs_of_knee=0.95),
    Scenario("arrivals at 92% of the service rate", _NEAR, Load(0.92), engine=1, seqs_of_knee=1.2),
    Scenario("1.44 times the requests", _NEAR, Load(1.05, closed=True), seqs_of_knee=2.0,
             before=Load(0.73, closed=True)),
    Scenario("KV cache at 85%", _NEAR, Load(0.30, closed=True, sigma=0.2), kv_tokens=11_000,
             max_num_seqs=31),
    Scenario("prompts 1.2 times as long, SLO held", _NEAR, Load(0.6, prompt_factor=1.2), slo_over_p99=1.06),
    Scenario("P99 at 95% of its target", _NEAR, Load(0.5), slo_over_p99=1.06),
    Scenario("P99 at 95% of its target, large model", _NEAR, Load(0.6), engine=2, slo_over_p99=1.06),
    Scenario("fine buckets around the target", _NEAR, Load(0.5), slo=Slo(ttft_s=0.2),
             buckets_s=(0.05, 0.1, 0.15, 0.19, 0.215, 0.3, 0.5, 1.0)),
    Scenario("a network of 27% of TTFT", _NEAR, Load(0.5), faults=Faults(network_ms=35), client=True),
    Scenario("a host that takes its time", _NEAR, Load(0.5), faults=Faults(host_ms=9)),
    Scenario("a router at 1.85 to 1", _NEAR, Load(0.4), seqs_of_knee=1.0, router_share=0.60),
    Scenario("prompts of three and a half steps", _NEAR, Load(0.5, long_share=0.1, long_tokens=1500), engine=0),
    Scenario("a budget almost full", _NEAR, Load(0.72), max_num_seqs=128, budget=192),
)  # fmt: skip

_BAD = Kind.BAD_METRICS
BAD_METRICS = (
    Scenario("KV usage by its old name", _BAD, Load(1.0, closed=True, output_factor=3.0, prompt_factor=0.5),
             frozenset({R.KV_PRESSURE}), kv_tokens=12_000,
             renamed=(("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),)),
    Scenario("gaps between tokens by their old name", _BAD, LONG_PROMPTS, frozenset({R.PREFILL_JITTER}), budget=8192,
             renamed=(("inter_token_latency_seconds", "time_per_output_token_seconds"),)),
    Scenario("names as Ray writes them", _BAD, Load(1.3), frozenset({R.ARRIVALS_ABOVE_SERVICE}),
             frozenset({R.PAST_THE_KNEE}), seqs_of_knee=1.0, renamed=(("vllm:", "ray_vllm_"),)),
    Scenario("names as KServe relabels them", _BAD, Load(2.2, closed=True), frozenset({R.PAST_THE_KNEE}),
             seqs_of_knee=0.9, engine=1, renamed=(("vllm:", "kserve_vllm:"),)),
    Scenario("prefix hits by their old name", _BAD, Load(0.7), frozenset({R.WORKLOAD_DIFFERS}), slo=Slo(tpot_s=0.045),
             run_hit_share=0.6, renamed=(("vllm:prefix_cache", "vllm:gpu_prefix_cache"),)),
    Scenario("gaps between tokens missing", _BAD, LONG_PROMPTS, budget=8192,
             dropped=("vllm:inter_token_latency_seconds",), unjudged=frozenset({R.PREFILL_JITTER})),
    Scenario("queue missing", _BAD, Load(1.3), seqs_of_knee=1.0, dropped=("vllm:num_requests_waiting",),
             unjudged=frozenset({R.ARRIVALS_ABOVE_SERVICE, R.PAST_THE_KNEE})),
    Scenario("queue time missing", _BAD, Load(1.3), frozenset({R.ARRIVALS_ABOVE_SERVICE}), seqs_of_knee=1.0, engine=1,
             dropped=("vllm:request_queue_time_seconds",), unjudged=frozenset({R.PAST_THE_KNEE})),
    Scenario("slow host without DCGM", _BAD, Load(0.5), faults=SLOW_HOST[0], gpu=False,
             unjudged=frozenset({R.CPU_BOUND})),
    Scenario("saturated without a run", _BAD, Load(1.6, closed=True), with_run=False,
             unjudged=frozenset({R.SATURATED_COMPUTE})),
    Scenario("preemptions missing", _BAD, Load(1.0, closed=True, output_factor=0.5), frozenset({R.KV_PRESSURE}),
             kv_tokens=12_000, dropped=("vllm:num_preemptions",)),
    Scenario("TTFT missing", _BAD, Load(0.5), slo=Slo(ttft_s=0.1), dropped=("vllm:time_to_first_token_seconds",),
             unjudged=frozenset({R.TAIL_MISSES})),
    Scenario("token counters missing on a healthy engine", _BAD, Load(0.5), engine=1,
             dropped=("vllm:prompt_tokens", "vllm:generation_tokens"),
             unjudged=frozenset({R.SATURATED_COMPUTE, R.TOO_LITTLE_LOAD})),
)  # fmt: skip

BOUNDARIES = (
    Scenario("single requests", Kind.BOUNDARY, Load(0, rate=0.08), boundary=Boundary.LOW_RATE),
    Scenario("an offline batch", Kind.BOUNDARY, Load(2.2, closed=True), seqs_of_knee=0.9,
             objective=Objective.THROUGHPUT, boundary=Boundary.OFFLINE_BATCH),
    Scenario("a classifier", Kind.BOUNDARY, Load(0, rate=20.0, output_tokens=1), boundary=Boundary.SHORT_OUTPUTS,
             slo=Slo(ttft_s=2.0)),
    Scenario("two replicas in one", Kind.BOUNDARY, Load(0.5), engine=1, summed=True,
             boundary=Boundary.REPLICA_TOTALS, slo=Slo(ttft_s=0.17), buckets_s=VLLM_TTFT_S),
)  # fmt: skip
