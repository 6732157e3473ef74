"""vLLM's metrics under every prefix, summed over ranks; what is missing is named and never zero."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.observe.engine_http import (
    LARGEST_ANSWER_BYTES,
    EngineUnreachable,
    fetch,
    open_http,
)
from kneekeeper.observe.engine_metrics import (
    TPOT,
    TTFT,
    MetricsMissing,
    buckets,
    engine_metrics,
    parse_samples,
    scrape,
)

GOLDEN = (Path(__file__).parents[1] / "contract/golden/vllm-0.32-metrics.txt").read_text()


def exposition(prefix: str = "vllm:", ranks: int = 1, **values: str) -> str:
    numbers = {
        "num_requests_running": "3",
        "num_requests_waiting": "2",
        "num_preemptions_total": "1",
        "generation_tokens_total": "1e3",
    } | values
    return "".join(
        f'{prefix}{name}{{engine="{rank}",model_name="m"}} {value}\n'
        for name, value in numbers.items()
        if value
        for rank in range(ranks)
    )


def test_the_golden_file_of_real_vllm_is_read():
    metrics = engine_metrics(parse_samples(GOLDEN))
    assert (metrics.running, metrics.waiting) == (0, 0)
    assert metrics.kv_cache_tokens == 65536
    assert metrics.generation_tokens_total == 14
    assert metrics.preemptions_total == 0


def test_the_golden_file_has_the_histograms_in_which_violations_are_judged():
    samples = parse_samples(GOLDEN)
    for family in (TTFT, TPOT):
        histogram = buckets(samples, family)
        assert histogram is not None
        assert histogram[math.inf] == 2


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm_", "ray_vllm:", "kserve_vllm:"])
def test_every_known_prefix_is_read(prefix):
    assert engine_metrics(parse_samples(exposition(prefix))).running == 3


def test_counters_of_prefix_cache_and_speculation_are_read_where_there_are_any():
    golden = engine_metrics(parse_samples(GOLDEN))
    assert golden.block_tokens == 128
    assert golden.prefix_cache_queries_total is not None
    assert golden.prefix_cache_hits_total == 0
    assert golden.draft_tokens_total is None
    counted = exposition(
        ranks=2,
        prefix_cache_queries_total="100",
        prefix_cache_hits_total="40",
        spec_decode_num_draft_tokens_total="30",
        spec_decode_num_accepted_tokens_total="20",
    )
    metrics = engine_metrics(parse_samples(counted))
    assert (metrics.prefix_cache_queries_total, metrics.prefix_cache_hits_total) == (200, 80)
    assert (metrics.draft_tokens_total, metrics.accepted_tokens_total) == (60, 40)
    assert metrics.block_tokens is None


def test_the_names_before_vllm_0_9_2_are_read_and_the_newer_ones_go_first():
    old: dict[str, Any] = {"gpu_prefix_cache_queries_total": "50", "gpu_prefix_cache_hits_total": "10"}
    metrics = engine_metrics(parse_samples(exposition(**old)))
    assert (metrics.prefix_cache_queries_total, metrics.prefix_cache_hits_total) == (50, 10)
    both = engine_metrics(parse_samples(exposition(**old, prefix_cache_queries_total="70")))
    assert both.prefix_cache_queries_total == 70


def test_series_of_others_are_left_out():
    foreign = 'router_num_requests_running{engine="0"} 50\nprocess_cpu_seconds_total 1\n'
    assert engine_metrics(parse_samples(exposition() + foreign)).running == 3


def test_ranks_are_summed():
    metrics = engine_metrics(parse_samples(exposition(ranks=4)))
    assert (metrics.running, metrics.waiting, metrics.generation_tokens_total) == (12, 8, 4000)


@pytest.mark.parametrize("name", ["kv_cache_usage_perc", "gpu_cache_usage_perc"])
def test_the_kv_cache_is_as_full_as_that_of_the_fullest_rank(name):
    usage = f'vllm:{name}{{engine="0"}} 0.25\nvllm:{name}{{engine="1"}} 0.75\n'
    assert engine_metrics(parse_samples(exposition() + usage)).kv_cache_usage == 0.75
    assert engine_metrics(parse_samples(exposition())).kv_cache_usage is None


def test_missing_families_are_named_together():
    text = exposition(num_requests_waiting="", num_preemptions_total="")
    with pytest.raises(MetricsMissing) as missing:
        engine_metrics(parse_samples(text))
    assert missing.value.names == ("num_requests_waiting", "num_preemptions_total")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e17"])
def test_what_no_engine_can_count_is_missing(value):
    with pytest.raises(MetricsMissing, match="num_requests_running"):
        engine_metrics(parse_samples(exposition(num_requests_running=value)))


@pytest.mark.parametrize(
    ("labels", "tokens"),
    [
        ('kv_cache_size_tokens="65536",num_gpu_blocks="7",block_size="16"', 65536),
        ('num_gpu_blocks="100",block_size="16"', 1600),
        ('kv_cache_size_tokens="None",num_gpu_blocks="100",block_size="16"', 1600),
        ('num_gpu_blocks="None",block_size="16"', None),
        ('cache_dtype="auto"', None),
    ],
)
def test_the_kv_cache_is_told_by_its_size_else_by_its_blocks(labels, tokens):
    text = f"{exposition()}vllm:cache_config_info{{{labels}}} 1\n"
    assert engine_metrics(parse_samples(text)).kv_cache_tokens == tokens


def test_the_kv_cache_of_all_ranks_is_summed_unless_one_is_not_known():
    one = 'vllm:cache_config_info{engine="0",kv_cache_size_tokens="10"} 1\n'
    two = 'vllm:cache_config_info{engine="1",kv_cache_size_tokens="20"} 1\n'
    unknown = 'vllm:cache_config_info{engine="2"} 1\n'
    assert engine_metrics(parse_samples(exposition() + one + two)).kv_cache_tokens == 30
    assert engine_metrics(parse_samples(exposition() + one + unknown)).kv_cache_tokens is None


def test_without_cache_config_the_kv_cache_is_not_known():
    assert engine_metrics(parse_samples(exposition())).kv_cache_tokens is None


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_the_sum_over_ranks_is_exact(counts):
    lines = "".join(f'vllm:num_requests_running{{engine="{i}"}} {n}\n' for i, n in enumerate(counts))
    text = exposition(num_requests_running="") + lines
    assert engine_metrics(parse_samples(text)).running == sum(counts)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_as_no_exposition(text):
    try:
        parse_samples(text)
    except ValueError:
        return


def answering(status: int = 200, text: str = "", **headers: str) -> httpx.AsyncClient:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text=text, headers=headers)

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))


async def test_a_scrape_reads_the_engines_metrics():
    samples = await scrape(answering(text=exposition()), "10.0.0.1", 8000)
    assert engine_metrics(samples).waiting == 2


async def test_an_engine_is_reached_by_address_only():
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        await scrape(answering(), "engine.example.com", 8000)


async def test_an_ipv6_address_is_written_in_brackets():
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, text=exposition())

    await scrape(httpx.AsyncClient(transport=httpx.MockTransport(answer)), "fd00::1", 8000)
    assert asked == ["http://[fd00::1]:8000/metrics"]


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_any_other_answer_than_200_is_no_answer(status):
    with pytest.raises(EngineUnreachable, match=f"HTTP {status}"):
        await fetch(answering(status, location="http://10.0.0.2/"), "10.0.0.1", 8000, "/metrics")


async def test_an_endless_answer_is_cut_off():
    with pytest.raises(EngineUnreachable, match="longer than"):
        await fetch(answering(text="x" * (LARGEST_ANSWER_BYTES + 1)), "10.0.0.1", 8000, "/metrics")


async def test_what_is_no_exposition_is_no_answer():
    with pytest.raises(EngineUnreachable, match="Prometheus text format"):
        await scrape(answering(text="vllm:num_requests_running{ 3"), "10.0.0.1", 8000)


async def test_an_engine_that_refuses_connections_is_unreachable():
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    http = httpx.AsyncClient(transport=httpx.MockTransport(refuse))
    with pytest.raises(EngineUnreachable, match="refused"):
        await scrape(http, "10.0.0.1", 8000)


async def test_engines_are_reached_without_proxies_and_redirects(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example.com:3128")
    async with open_http() as http:
        assert http.trust_env is False
        assert http.follow_redirects is False


@pytest.mark.parametrize(
    "series",
    [
        'vllm:cache_config_info{kv_cache_size_tokens="' + "9" * 5000 + '"} 1',
        'vllm:cache_config_info{block_size="' + "9" * 5000 + '",num_gpu_blocks="2"} 1',
        'vllm:cache_config_info{block_size="-1",num_gpu_blocks="x"} 1',
        'vllm:cache_config_info{block_size="999999999999",num_gpu_blocks="999999999999"} 1',
    ],
)
def test_a_size_that_no_engine_can_have_is_not_known(series):
    metrics = engine_metrics(parse_samples(exposition() + series + "\n"))
    assert metrics.kv_cache_tokens is None
    assert metrics.block_tokens is None


def test_numbers_that_have_no_sum_are_missing():
    with pytest.raises(MetricsMissing, match="generation_tokens_total"):
        engine_metrics(parse_samples(exposition(ranks=2, generation_tokens_total="1.7e308")))


@pytest.mark.parametrize(
    "bucket", ['{le="x"} 1', '{le="NaN"} 1', '{other="1"} 1', '{le="1"} NaN', '{le="1"} +Inf', '{le="1"} -1'], ids=str
)
def test_a_histogram_with_what_is_no_bound_or_no_count_is_none(bucket):
    text = f'vllm:{TTFT}_bucket{{le="+Inf"}} 2\nvllm:{TTFT}_bucket{bucket}\n'
    assert buckets(parse_samples(text), TTFT) is None
