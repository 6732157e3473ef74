"""The server's own counters, read beside a probe."""

from __future__ import annotations

import httpx

from kneekeeper.domain.contradictions import ServerTotals
from kneekeeper.local.served import BaseUrl
from kneekeeper.observe.engine_metrics import GENERATED, TTFT, parse_samples, total
from kneekeeper.observe.exposition import Sample

_SUCCESS = "request_success_total"
_ABORTED = "abort"  # a request that the client broke off
_PROMPT = "prompt_tokens_total"
_QUERIES = "prefix_cache_queries_total"
_HITS = "prefix_cache_hits_total"


async def read_totals(http: httpx.AsyncClient, base: BaseUrl) -> ServerTotals | None:
    """vLLM's counters; None where /metrics does not answer or is not vLLM's."""
    try:
        answer = await http.get(f"{base.url}/metrics", headers=base.headers)
        samples = parse_samples(answer.text) if answer.status_code == httpx.codes.OK else ()
    except (httpx.HTTPError, ValueError):
        return None
    return totals_of(samples) if samples else None


def totals_of(samples: tuple[Sample, ...]) -> ServerTotals:
    """The counters that a probe is compared with, summed over ranks and models."""
    ended = [s for s in samples if s.name != _SUCCESS or s.labels.get("finished_reason") != _ABORTED]
    return ServerTotals(
        requests=total(ended, _SUCCESS),
        prompt_tokens=total(samples, _PROMPT),
        generation_tokens=total(samples, GENERATED),
        ttft_sum_s=total(samples, f"{TTFT}_sum"),
        ttft_count=total(samples, f"{TTFT}_count"),
        prefix_queries=total(samples, _QUERIES),
        prefix_hits=total(samples, _HITS),
    )
