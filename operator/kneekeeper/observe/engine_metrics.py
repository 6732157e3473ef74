"""vLLM's /metrics, from any of its releases and wrappers, as numbers of one engine."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import httpx

from kneekeeper.api.serving_profile import Scheme
from kneekeeper.domain.metric_names import NAME_PREFIX
from kneekeeper.domain.observation import EngineMetrics
from kneekeeper.observe.engine_http import EngineUnreachable, authority, fetch
from kneekeeper.observe.exposition import NotAnExposition, Sample, series_of

RUNNING = "num_requests_running"
WAITING = "num_requests_waiting"
GENERATED = "generation_tokens_total"
PREEMPTIONS = "num_preemptions_total"
KV_USAGES = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
"""The second is the name up to 0.9."""

CACHE_CONFIG = "cache_config_info"
CACHE_SIZE_LABELS = ("kv_cache_size_tokens", "num_gpu_blocks", "block_size")
PREFIX_QUERIES = "prefix_cache_queries_total"
PREFIX_HITS = "prefix_cache_hits_total"
OLD_PREFIX = "gpu_"
"""In front of both before vLLM 0.9.2; 0.8.5 counts blocks, later ones tokens: the share is the same."""
DRAFT_TOKENS = "spec_decode_num_draft_tokens_total"
ACCEPTED_TOKENS = "spec_decode_num_accepted_tokens_total"
TTFT = "time_to_first_token_seconds"
TPOT = "request_time_per_output_token_seconds"
E2E = "e2e_request_latency_seconds"
ENDED = "request_success_total"
"""By `finished_reason`: of those that failed as well, in spite of its name."""

_SINCE = {TPOT: "0.11"}
"""Families of what is judged that came late. Source: vLLM's sources of 0.10.2 and 0.11.0."""

_PREFIX = re.compile(f"^{NAME_PREFIX}")
_LONGEST_COUNT = 12  # digits
_LARGEST = 1e15  # tokens of thirty years at a million a second; a status carries sums of some of these
_LARGEST_BLOCK = 65_536  # tokens: as many as a stage may be built for


class MetricsMissing(Exception):
    """Families that should be there are not; never taken for zero."""

    def __init__(self, names: Sequence[str]) -> None:
        told = [f"{name} (vLLM {_SINCE[name]} and later)" if name in _SINCE else name for name in names]
        super().__init__(
            f"metrics are missing: {', '.join(told)}; check that the engine is vLLM 0.8 or newer and that "
            "it runs without --disable-log-stats"
        )
        self.names = tuple(names)


Buckets = Mapping[float, float]
"""A histogram: requests at or below each bound, cumulative, the infinite bound included."""


def parse_samples(exposition: str) -> tuple[Sample, ...]:
    """vLLM's series, without its prefix; all others are left out.

    Raises NotAnExposition.
    """
    return tuple(series_of(exposition, _PREFIX))


def engine_metrics(samples: Iterable[Sample]) -> EngineMetrics:
    """The numbers of one engine, summed over its data-parallel ranks and models.

    Raises MetricsMissing with the names of all families that are absent or hold what is not possible.
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
    return max(usages) if usages and all(map(is_possible, usages)) else None


def is_possible(value: float) -> bool:
    """Whether an engine can say so of itself: what it counts and measures is a number, not negative, and no more
    than it can have counted."""
    return 0 <= value <= _LARGEST


def total(samples: Iterable[Sample], name: str) -> float | None:
    """The sum over all series of a family, None when there is none or one is not possible."""
    values = [sample.value for sample in samples if sample.name == name]
    found = math.fsum(values) if values and all(map(is_possible, values)) else math.nan
    return found if is_possible(found) else None


def buckets(samples: Iterable[Sample], name: str) -> Buckets | None:
    """The histogram `name`, summed over all series; None when it is absent or holds what is not possible."""
    counts: dict[float, float] = {}
    for sample in samples:
        if sample.name == f"{name}_bucket":
            bound = _bound(sample.labels.get("le", ""))
            if bound is None:
                return None
            counts[bound] = counts.get(bound, 0.0) + sample.value
    return counts if math.inf in counts and all(map(is_possible, counts.values())) else None


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def _kv_cache_tokens(samples: Sequence[Sample]) -> int | None:
    """`kv_cache_size_tokens` where vLLM tells it (0.32), since blocks times block size is wrong for models
    with several kinds of attention; else that product."""
    sizes = [cache_size_tokens(sample.labels) for sample in samples if sample.name == CACHE_CONFIG]
    known = [size for size in sizes if size is not None]
    return sum(known) if sizes and len(known) == len(sizes) and is_possible(sum(known)) else None


def _prefix_total(samples: Sequence[Sample], name: str) -> float | None:
    """The newer name where both are there, as in vLLM 0.9.2 to 0.11."""
    newer = total(samples, name)
    return newer if newer is not None else total(samples, f"{OLD_PREFIX}{name}")


def _block_tokens(samples: Sequence[Sample]) -> int | None:
    sizes = {sample.labels.get("block_size", "") for sample in samples if sample.name == CACHE_CONFIG}
    tokens = _count(sizes.pop()) if len(sizes) == 1 else None
    return tokens if tokens and tokens <= _LARGEST_BLOCK else None


def cache_size_tokens(labels: Mapping[str, str]) -> int | None:
    """Of one engine, from the labels of its CACHE_CONFIG; None where they do not tell."""
    size, blocks, block_size = (_count(labels.get(name, "")) for name in CACHE_SIZE_LABELS)
    if size is not None:
        return size
    return None if blocks is None or block_size is None else blocks * block_size


def _count(text: str) -> int | None:
    """A label as a count; one that no engine can have is none."""
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_COUNT else None


async def scrape(http: httpx.AsyncClient, host: str, port: int, scheme: Scheme = Scheme.HTTP) -> tuple[Sample, ...]:
    """vLLM's series at scheme://host:port/metrics; they need no API key.

    Raises EngineUnreachable, also when the answer is no exposition; ValueError when `host` is no IP address.
    """
    body = await fetch(http, host, port, "/metrics", {"Accept": "text/plain; version=0.0.4"}, scheme)
    try:
        return parse_samples(body.decode("utf-8", "replace"))
    except NotAnExposition:
        url = f"{scheme}://{authority(host, port)}/metrics"
        raise EngineUnreachable(url, "its answer is not in the Prometheus text format") from None
