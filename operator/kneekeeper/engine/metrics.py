"""The `vllm:` metrics of vLLM 0.32: names, labels, types and buckets, and what each records when."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from kneekeeper.engine.buckets import Buckets, buckets_of
from kneekeeper.engine.cache_config import cache_config_labels
from kneekeeper.engine.configuration import EngineConfiguration
from kneekeeper.engine.memory import KvCache

_LABELS = ("model_name", "engine")
_ENGINE_INDEX = "0"
_FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
_PROMPT_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
_CACHE_TIERS = ("device", "host", "p2p", "disk", "external_unspecified")
_UNUSED_COUNTERS = {
    "estimated_flops_per_gpu_total": "Floating-point operations per GPU, estimated.",
    "estimated_read_bytes_per_gpu_total": "Bytes read from memory per GPU, estimated.",
    "estimated_write_bytes_per_gpu_total": "Bytes written to memory per GPU, estimated.",
    "external_prefix_cache_queries": "Prefix cache queries to other instances, in tokens.",
    "external_prefix_cache_hits": "Prefix cache hits from other instances, in tokens.",
    "mm_cache_queries": "Multi-modal cache queries, in items.",
    "mm_cache_hits": "Multi-modal cache hits, in items.",
}
"""Present in a real server from its start, and zero for ever in this one."""


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """The story of a request that got its last token. Times in seconds, as vLLM defines them."""

    finish_reason: str
    prompt_tokens: int
    generation_tokens: int
    max_tokens: int
    preemptions: int
    e2e_s: float
    queue_s: float
    prefill_s: float
    decode_s: float


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """The state after a step."""

    running: int
    waiting: int
    kv_cache_usage: float


class BatchedHistogram(Collector):
    """A histogram that takes the same value many times at once, for what is observed with every token."""

    def __init__(self, name: str, documentation: str, buckets: Buckets, labels: Mapping[str, str]) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = dict(labels)
        self._bounds = list(buckets)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._created_s = time.time()

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect.bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def collect(self) -> Iterable[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._documentation, labels=list(self._labels))
        cumulative = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, math.inf), self._counts, strict=True):
            cumulative += count
            buckets.append(("+Inf" if bound == math.inf else str(float(bound)), float(cumulative)))
        family.add_metric(list(self._labels.values()), buckets, self._sum)
        family.add_sample(f"{self._name}_created", self._labels, self._created_s)
        yield family


class EngineMetrics:
    """The metrics of one engine, registered in `registry`."""

    def __init__(self, registry: CollectorRegistry, configuration: EngineConfiguration, kv_cache: KvCache) -> None:
        self._registry = registry
        self._configuration = configuration
        self._labels = {"model_name": configuration.arguments.served_model_names[0], "engine": _ENGINE_INDEX}
        self._prefix_caching = configuration.arguments.enable_prefix_caching
        self._create_constants(kv_cache)
        self._create_state()
        self._create_counters()
        self._create_latencies()
        self._create_counts()

    def record_state(self, state: SchedulerState) -> None:
        """Set the gauges to the state after a step."""
        self._running.set(state.running)
        self._waiting.set(state.waiting)
        self._waiting_for_capacity.set(state.waiting)
        self._kv_cache_usage.set(state.kv_cache_usage)

    def record_first_tokens(self, prompt_tokens: int, cached_tokens: int, ttfts_s: Iterable[float]) -> None:
        """Requests got their first token in this step; their prompts count now, as a whole."""
        self._prompt_tokens.inc(prompt_tokens)
        self._computed_prompt_tokens.inc(prompt_tokens - cached_tokens)
        self._cached_prompt_tokens.inc(cached_tokens)
        self._all_cached_prompt_tokens.inc(cached_tokens)
        for ttft_s in ttfts_s:
            self._ttft.observe(ttft_s)

    def record_admission(self, prompt_tokens: int, cached_tokens: int) -> None:
        """A request was scheduled for the first time; the prefix cache was asked for its prompt."""
        if self._prefix_caching:
            self._prefix_cache_queries.inc(prompt_tokens)
            self._prefix_cache_hits.inc(cached_tokens)

    def record_step(self, generation_tokens: int, first_prompt_tokens: int, gaps: Mapping[float, int]) -> None:
        """One step's tokens, and how often each gap (seconds) since a request's last token occurred."""
        self._generation_tokens.inc(generation_tokens)
        self._iteration_tokens.observe(generation_tokens + first_prompt_tokens)
        for gap_s, times in gaps.items():
            self._itl.observe(gap_s, times)

    def record_preemptions(self, count: int) -> None:
        self._preemptions.inc(count)

    def record_finished(self, request: FinishedRequest) -> None:
        """A request got its last token. Aborted ones are not recorded, as in vLLM."""
        self._success[request.finish_reason].inc()
        tokens = request.generation_tokens
        self._e2e.observe(request.e2e_s)
        self._queue.observe(request.queue_s)
        self._prefill.observe(request.prefill_s)
        self._decode.observe(request.decode_s)
        self._inference.observe(request.prefill_s + request.decode_s)
        self._tpot.observe(request.decode_s / (tokens - 1) if tokens > 1 else 0.0)
        self._request_preemptions.observe(request.preemptions)
        self._request_prompt_tokens.observe(request.prompt_tokens)
        self._request_computed_tokens.observe(request.prompt_tokens)
        self._request_generation_tokens.observe(tokens)
        self._request_max_generation_tokens.observe(tokens)
        self._request_max_tokens.observe(request.max_tokens)
        self._request_n.observe(1)

    def _create_constants(self, kv_cache: KvCache) -> None:
        labels = cache_config_labels(self._configuration, kv_cache, _ENGINE_INDEX)
        Gauge("vllm:cache_config_info", "The cache's configuration.", tuple(labels), registry=self._registry).labels(
            **labels
        ).set(1)
        sleep_state = self._gauge("engine_sleep_state", "1 for the state that holds.", "sleep_state")
        for state in ("awake", "weights_offloaded", "discard_all"):
            sleep_state.labels(**self._labels, sleep_state=state).set(state == "awake")
        for name, documentation in _UNUSED_COUNTERS.items():
            self._counter(name, documentation).labels(**self._labels)
        tiers = self._counter("prompt_tokens_cached_by_source", "Cached prompt tokens by cache tier.", "source")
        for tier in _CACHE_TIERS:
            tiers.labels(**self._labels, source=tier)
        rejections = Counter(
            "vllm:admission_rejections",
            "Requests refused at a queue limit.",
            ("model_name", "reason"),
            registry=self._registry,
        )
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            rejections.labels(model_name=self._labels["model_name"], reason=reason)

    def _create_state(self) -> None:
        self._running = self._gauge("num_requests_running", "Requests in execution.").labels(**self._labels)
        self._waiting = self._gauge("num_requests_waiting", "Requests waiting.").labels(**self._labels)
        by_reason = self._gauge("num_requests_waiting_by_reason", "Requests waiting, by reason.", "reason")
        self._waiting_for_capacity = by_reason.labels(**self._labels, reason="capacity")
        by_reason.labels(**self._labels, reason="deferred")
        usage = self._gauge("kv_cache_usage_perc", "KV cache in use; 1 is all of it.")
        self._kv_cache_usage = usage.labels(**self._labels)

    def _create_counters(self) -> None:
        labels = self._labels
        self._prefix_cache_queries = self._counter("prefix_cache_queries", "Prefix cache queries, in tokens.").labels(
            **labels
        )
        self._prefix_cache_hits = self._counter("prefix_cache_hits", "Prefix cache hits, in tokens.").labels(**labels)
        self._all_cached_prompt_tokens = self._counter(
            "prompt_tokens_cached", "Prompt tokens found in a cache."
        ).labels(**labels)
        self._preemptions = self._counter("num_preemptions", "Preemptions.").labels(**labels)
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens.").labels(**labels)
        by_source = self._counter("prompt_tokens_by_source", "Prompt tokens by source.", "source")
        sources = {source: by_source.labels(**labels, source=source) for source in _PROMPT_SOURCES}
        self._computed_prompt_tokens = sources["local_compute"]
        self._cached_prompt_tokens = sources["local_cache_hit"]
        self._generation_tokens = self._counter("generation_tokens", "Generated tokens.").labels(**labels)
        success = self._counter("request_success", "Finished requests by reason.", "finished_reason")
        self._success = {reason: success.labels(**labels, finished_reason=reason) for reason in _FINISH_REASONS}

    def _create_latencies(self) -> None:
        self._ttft = self._histogram("time_to_first_token_seconds", "TTFT.", "time_to_first_token")
        self._itl = self._batched("inter_token_latency_seconds", "Inter-token latency.", "inter_token_latency")
        self._tpot = self._histogram(
            "request_time_per_output_token_seconds", "TPOT per request.", "inter_token_latency"
        )
        self._e2e = self._histogram("e2e_request_latency_seconds", "Arrival to last token.", "request_latency")
        self._queue = self._histogram("request_queue_time_seconds", "Queued to scheduled.", "request_latency")
        self._inference = self._histogram(
            "request_inference_time_seconds", "Scheduled to last token.", "request_latency"
        )
        self._prefill = self._histogram("request_prefill_time_seconds", "Scheduled to first token.", "request_latency")
        self._decode = self._histogram("request_decode_time_seconds", "First to last token.", "request_latency")

    def _create_counts(self) -> None:
        self._iteration_tokens = self._histogram(
            "iteration_tokens_total", "Generated tokens and finished prompts per step.", "iteration_tokens"
        )
        self._request_preemptions = self._histogram(
            "request_num_preemptions", "Preemptions per request.", "request_num_preemptions"
        )
        self._request_prompt_tokens = self._histogram(
            "request_prompt_tokens", "Prompt tokens per request.", "request_tokens"
        )
        self._request_computed_tokens = self._histogram(
            "request_prefill_kv_computed_tokens", "Prompt tokens computed per request.", "request_tokens"
        )
        self._request_generation_tokens = self._histogram(
            "request_generation_tokens", "Generated tokens per request.", "request_tokens"
        )
        self._request_max_generation_tokens = self._histogram(
            "request_max_num_generation_tokens", "Longest answer per request.", "request_tokens"
        )
        self._request_max_tokens = self._histogram(
            "request_params_max_tokens", "The parameter max_tokens.", "request_tokens"
        )
        self._request_n = self._histogram("request_params_n", "The parameter n.", "request_params_n")

    def _gauge(self, name: str, documentation: str, *more_labels: str) -> Gauge:
        return Gauge(f"vllm:{name}", documentation, (*_LABELS, *more_labels), registry=self._registry)

    def _counter(self, name: str, documentation: str, *more_labels: str) -> Counter:
        return Counter(f"vllm:{name}", documentation, (*_LABELS, *more_labels), registry=self._registry)

    def _histogram(self, name: str, documentation: str, family: str) -> Histogram:
        buckets = self._buckets(family)
        metric = Histogram(f"vllm:{name}", documentation, _LABELS, buckets=buckets, registry=self._registry)
        return metric.labels(**self._labels)

    def _batched(self, name: str, documentation: str, family: str) -> BatchedHistogram:
        metric = BatchedHistogram(f"vllm:{name}", documentation, self._buckets(family), self._labels)
        self._registry.register(metric)
        return metric

    def _buckets(self, family: str) -> Buckets:
        custom = self._configuration.arguments.custom_histogram_buckets
        return buckets_of(family, self._configuration.max_model_len, custom)
