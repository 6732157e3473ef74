"""The history of production as a Prometheus server tells it, family by family."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.pods import parse_pod
from kneekeeper.observe.production_history import last_hours
from kneekeeper.observe.prometheus import PrometheusSource
from tests.unit.kube_objects import pod
from tests.unit.test_prometheus_source import URL, Answers

SERVING = ServingPods("prod", (parse_pod(pod("chat-a"), "vllm"), parse_pod(pod("chat-b"), "vllm")), 8000)
HOUR_S = 3600


def rows(values: dict[float, float], **labels: str) -> dict[str, Any]:
    return {"metric": labels, "values": [[at_s, str(value)] for at_s, value in values.items()]}


def of_engine(*values: float, name: str = "chat-a", engine: str = "0") -> dict[str, Any]:
    return rows({300.0 * (1 + i): value for i, value in enumerate(values)}, pod=name, engine=engine)


ENGINES = {
    "inter_token_latency_seconds_sum": [of_engine(4.0, 8.0), of_engine(2.0, 2.0, engine="1")],
    "inter_token_latency_seconds_count": [of_engine(100.0, 160.0), of_engine(50.0, 50.0, engine="1")],
    'avg_over_time({__name__=~"(ray_)?(kserve_)?vllm[:_]num_requests_running': [of_engine(5.0, 9.0)],
    "stddev_over_time": [of_engine(1.0, 2.0)],
    "kv_cache_usage_perc": [of_engine(0.1, math.nan)],
}

BUCKETS = [
    rows({HOUR_S: 10.0, 2 * HOUR_S: 0.0}, le="500.0"),
    rows({HOUR_S: 30.0, 2 * HOUR_S: 0.0}, le="1000.0"),
    rows({HOUR_S: 30.0, 2 * HOUR_S: 0.0}, le="+Inf"),
]
TRAFFIC = {
    "request_prompt_tokens_bucket": BUCKETS,
    "request_prompt_tokens_sum": [rows({HOUR_S: 18_000.0, 2 * HOUR_S: 0.0})],
    "request_generation_tokens_bucket": BUCKETS,
    "request_generation_tokens_sum": [rows({HOUR_S: 9_000.0})],
    "[24h]": [
        rows({15: 100, 30: 130, 60: 190}, pod="chat-a", engine="0", job="pods"),
        rows({15: 10, 30: 13, 60: 19}, pod="chat-a", engine="1", job="pods"),
        rows({20: 100, 35: 130}, pod="chat-a", engine="0", job="again"),
    ],
}


async def history(answers: dict[str, Any]):
    asked = Answers(answers)
    found = await PrometheusSource(URL, asked).history(SERVING)
    assert found is not None
    return found, asked.asked


async def test_each_rank_of_a_pod_is_an_engine_of_its_own():
    found, _ = await history(ENGINES)
    assert [(e.pod, e.rank) for e in found.engines] == [("chat-a", "0"), ("chat-a", "1")]
    first = found.engines[0]
    assert first.gap_s.tolist() == [0.04, 0.05]
    assert first.running.tolist() == [5.0, 9.0]
    assert first.running_sd.tolist() == [1.0, 2.0]
    assert first.at_s.tolist() == [300.0, 600.0]


async def test_what_is_not_there_is_unknown_and_never_zero():
    found, _ = await history(ENGINES)
    first, second = found.engines
    assert np.isnan(first.kv_usage).tolist() == [False, True]
    assert np.isnan(first.preemptions_per_s).all()
    assert np.isnan(second.running).all()


async def test_older_engines_call_the_gaps_by_another_name():
    older = {
        "kv_cache_usage_perc": [],
        **{key.replace("inter_token_latency", "time_per_output_token"): value for key, value in ENGINES.items()},
    }
    found, _ = await history({"vllm[:_]inter_token": [], **older})
    assert found.engines[0].gap_s.tolist() == [0.04, 0.05]


async def test_engines_without_gaps_have_no_history_and_are_not_asked_for_more():
    found, asked = await history({})
    assert found.engines == ()
    assert not [query for query in asked if "stddev" in query]


async def test_every_query_counts_a_pod_once_and_is_of_these_pods_alone():
    _, asked = await history(ENGINES | TRAFFIC)
    assert len(asked) <= 22
    for query in asked:
        assert "max by (" in query or query.endswith("[24h]")
        assert 'namespace="prod"' in query
        assert 'pod=~"chat\\\\-a|chat\\\\-b"' in query


def test_few_pods_are_looked_at_for_longer_so_that_as_much_is_read():
    assert [last_hours(pods) for pods in (0, 1, 4, 5, 8, 16)] == [24, 24, 24, 19, 12, 6]


async def test_lengths_come_by_hours_and_hours_without_requests_are_left_out():
    found, _ = await history(TRAFFIC)
    [hour] = found.traffic.hours
    assert hour.at_s == HOUR_S
    assert hour.requests == 30
    assert hour.prompt_tokens is not None
    assert hour.prompt_tokens.mean == 600
    assert hour.prompt_tokens.quantile_bracket(0.99) == (500.0, 1000.0)


async def test_first_tokens_come_scrape_by_scrape_from_one_job_and_all_ranks():
    found, _ = await history(TRAFFIC)
    [replica] = found.traffic.first_tokens
    assert replica.at_s.tolist() == [15, 30, 60]
    assert replica.total.tolist() == [110, 143, 209]


@pytest.mark.parametrize("older", [False, True])
async def test_prefix_hits_are_read_by_their_present_and_older_names(older: bool):
    prefix = "vllm[:_]gpu_" if older else "vllm[:_]"
    counts = {
        f"{prefix}prefix_cache_queries_total": [rows({HOUR_S: 100.0})],
        f"{prefix}prefix_cache_hits_total": [rows({HOUR_S: 25.0})],
    }
    found, _ = await history(TRAFFIC | counts)
    assert (found.traffic.hours[0].prefix_queries, found.traffic.hours[0].prefix_hits) == (100.0, 25.0)


async def test_a_target_without_pods_is_not_asked_for():
    asked = Answers({})
    assert await PrometheusSource(URL, asked).history(ServingPods("prod", (), 8000)) is None
    assert asked.asked == []


CACHE = {"kv_cache_size_tokens": "", "num_gpu_blocks": "1000", "block_size": "16"}
RECORDS = ENGINES | {
    "iteration_tokens_total_count": [of_engine(25.0, 20.0)],
    "request_prefill_time_seconds_sum": [of_engine(0.4, 0.6)],
    "request_prefill_time_seconds_count": [of_engine(2.0, 0.0)],
    "prefix_cache_queries_total": [of_engine(1000.0, 2000.0)],
    "prefix_cache_hits_total": [of_engine(250.0, 0.0)],
    "cache_config_info": [{"metric": {"pod": "chat-a", "engine": "0", **CACHE}, "values": [[300.0, "1"]]}],
}


async def test_a_record_has_what_a_fit_needs_beside_the_history():
    found = await PrometheusSource(URL, Answers(RECORDS)).records(SERVING)
    assert found is not None
    first, second = found
    assert first.history.pod == "chat-a"
    assert first.steps_per_s.tolist() == [25.0, 20.0]
    assert first.prefill_s.tolist()[0] == 0.2
    assert math.isnan(first.prefill_s[1])
    assert first.hit_share.tolist() == [0.25, 0.0]
    assert first.kv_cache_tokens == 16_000
    assert second.missing == (
        "iteration_tokens_total",
        "request_prefill_time_seconds",
        "kv_cache_usage_perc",
        "cache_config_info",
    )


async def test_older_engines_count_prefix_hits_by_another_name():
    older = {key.replace("prefix_cache", "gpu_prefix_cache"): value for key, value in RECORDS.items()}
    found = await PrometheusSource(URL, Answers({"vllm[:_]prefix": [], **older})).records(SERVING)
    assert found is not None
    assert found[0].hit_share.tolist() == [0.25, 0.0]


async def test_engines_without_history_have_no_record():
    assert await PrometheusSource(URL, Answers({})).records(SERVING) == ()
