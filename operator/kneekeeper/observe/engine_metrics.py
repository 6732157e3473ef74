"""vLLM's /metrics, from any of its releases and wrappers, as numbers of one engine."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from kneekeeper.api.serving_profile import Scheme
from kneekeeper.domain.observation import EngineMetrics
from kneekeeper.observe.engine_http import EngineUnreachable, authority, fetch

NAME_PREFIX = r"(ray_)?(kserve_)?vllm[:_]"
"""Ray writes `vllm_` and puts its own prefix in front; KServe's monitoring relabels to `kserve_vllm`."""

RUNNING = "num_requests_running"
WAITING = "num_requests_waiting"
GENERATED = "generation_tokens_total"
PREEMPTIONS = "num_preemptions_total"
KV_USAGES = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
"""The second is the name up to 0.9."""

CACHE_CONFIG = "cache_config_info"
PREFIX_QUERIES = "prefix_cache_queries_total"
PREFIX_HITS = "prefix_cache_hits_total"
OLD_PREFIX = "gpu_"
"""In front of both before vLLM 0.9.2; 0.8.5 counts blocks, later ones tokens: the share is the same."""
DRAFT_TOKENS = "spec_decode_num_draft_tokens_total"
ACCEPTED_TOKENS = "spec_decode_num_accepted_tokens_total"
TTFT = "time_to_first_token_seconds"
TPOT = "request_time_per_output_token_seconds"
E2E = "e2e_request_latency_seconds"

_PREFIX = re.compile(f"^{NAME_PREFIX}")


class MetricsMissing(Exception):
    """Families that should be there are not; never taken for zero."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            f"metrics are missing: {', '.join(names)}; check that the engine is vLLM 0.8 or newer and that "
            "it runs without --disable-log-stats"
        )
        self.names = tuple(names)


@dataclass(frozen=True)
class Sample:
    """One series of an exposition; `name` is without the prefix, counters keep their `_total`."""

    name: str
    labels: Mapping[str, str]
    value: float


Buckets = Mapping[float, float]
"""A histogram: requests at or below each bound, cumulative, the infinite bound included."""


def parse_samples(exposition: str) -> tuple[Sample, ...]:
    """vLLM's series; all others are left out.

    Raises ValueError when the text is not in the Prometheus format.
    """
    return tuple(
        Sample(_PREFIX.sub("", sample.name), sample.labels, float(sample.value))
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if _PREFIX.match(sample.name)
    )


def engine_metrics(samples: Iterable[Sample]) -> EngineMetrics:
    """The numbers of one engine, summed over its data-parallel ranks and models.

    Raises MetricsMissing with the names of all families that are absent or hold no finite number.
    """
    samples = tuple(samples)
    sums = {name: total(samples, name) for name in (RUNNING, WAITING, GENERATED, PREEMPTIONS)}
    missing = [name for name, value in sums.items() if value is None]
    if missing:
        raise MetricsMissing(missing)
    return EngineMetrics(
        running=round(sums[RUNNING] or 0.0),
        waiting=round(sums[WAITING] or 0.0),
        kv_cache_tokens=_kv_cache_tokens(samples),
        generation_tokens_total=sums[GENERATED] or 0.0,
        preemptions_total=sums[PREEMPTIONS] or 0.0,
        kv_cache_usage=_kv_cache_usage(samples),
        block_tokens=_block_tokens(samples),
        prefix_cache_queries_total=_prefix_total(samples, PREFIX_QUERIES),
        prefix_cache_hits_total=_prefix_total(samples, PREFIX_HITS),
        draft_tokens_total=total(samples, DRAFT_TOKENS),
        accepted_tokens_total=total(samples, ACCEPTED_TOKENS),
    )


def _kv_cache_usage(samples: Sequence[Sample]) -> float | None:
    usages = [sample.value for sample in samples if sample.name in KV_USAGES]
    return max(usages) if usages and all(map(math.isfinite, usages)) else None


def total(samples: Iterable[Sample], name: str) -> float | None:
    """The sum over all series of a family, None when there is none or one is not finite."""
    values = [sample.value for sample in samples if sample.name == name]
    return math.fsum(values) if values and all(map(math.isfinite, values)) else None


def buckets(samples: Iterable[Sample], name: str) -> Buckets | None:
    """The histogram `name`, summed over all series; None when it is absent."""
    counts: dict[float, float] = {}
    for sample in samples:
        if sample.name == f"{name}_bucket":
            bound = float(sample.labels["le"])
            counts[bound] = counts.get(bound, 0.0) + sample.value
    return counts if math.inf in counts else None


def _kv_cache_tokens(samples: Sequence[Sample]) -> int | None:
    """`kv_cache_size_tokens` where vLLM tells it (0.32), since blocks times block size is wrong for models
    with several kinds of attention; else that product."""
    sizes = [_cache_size(sample.labels) for sample in samples if sample.name == CACHE_CONFIG]
    known = [size for size in sizes if size is not None]
    return sum(known) if sizes and len(known) == len(sizes) else None


def _prefix_total(samples: Sequence[Sample], name: str) -> float | None:
    """The newer name where both are there, as in vLLM 0.9.2 to 0.11."""
    newer = total(samples, name)
    return newer if newer is not None else total(samples, f"{OLD_PREFIX}{name}")


def _block_tokens(samples: Sequence[Sample]) -> int | None:
    sizes = {sample.labels.get("block_size", "") for sample in samples if sample.name == CACHE_CONFIG}
    size = sizes.pop() if len(sizes) == 1 else ""
    return int(size) if size.isdecimal() and int(size) > 0 else None


def _cache_size(labels: Mapping[str, str]) -> int | None:
    size = labels.get("kv_cache_size_tokens", "")
    if size.isdecimal():
        return int(size)
    blocks, block_size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    return int(blocks) * int(block_size) if blocks.isdecimal() and block_size.isdecimal() else None


async def scrape(http: httpx.AsyncClient, host: str, port: int, scheme: Scheme = Scheme.HTTP) -> tuple[Sample, ...]:
    """vLLM's series at scheme://host:port/metrics; they need no API key.

    Raises EngineUnreachable, also when the answer is no exposition; ValueError when `host` is no IP address.
    """
    body = await fetch(http, host, port, "/metrics", {"Accept": "text/plain; version=0.0.4"}, scheme)
    try:
        return parse_samples(body.decode("utf-8", "replace"))
    except ValueError:
        url = f"{scheme}://{authority(host, port)}/metrics"
        raise EngineUnreachable(url, "its answer is not in the Prometheus text format") from None
