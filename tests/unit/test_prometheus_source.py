"""What Prometheus is asked, and what its answers and its troubles mean."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
import requests
from prometheus_api_client.exceptions import PrometheusApiClientException

from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import Gauge, GpuWindow
from kneekeeper.domain.observation import EngineMetrics, Unreachable
from kneekeeper.observe.engine_metrics import MetricsMissing
from kneekeeper.observe.metrics import MetricsUnreachable, ServingPods
from kneekeeper.observe.pods import parse_pod
from kneekeeper.observe.prometheus import PrometheusSource, series
from tests.unit.kube_objects import pod

URL = "http://prometheus.example.com"
SERVING = ServingPods("prod", (parse_pod(pod("chat-a"), "vllm"), parse_pod(pod("chat-b"), "vllm")), 8000)

Vector = list[dict[str, Any]]


def of_pods(**values: float) -> Vector:
    return [{"metric": {"pod": f"chat-{k}"}, "value": [0, str(v)]} for k, v in values.items()]


def of_bounds(**values: float) -> Vector:
    return [{"metric": {"le": k.replace("_", ".").removeprefix("le")}, "value": [0, str(v)]} for k, v in values.items()]


class Answers:
    """Answers a query by the first key that stands in it."""

    def __init__(self, answers: Mapping[str, Vector | Exception]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def custom_query(self, query: str) -> Vector:
        self.asked.append(query)
        answer = next((a for key, a in self.answers.items() if key in query), [])
        if isinstance(answer, Exception):
            raise answer
        return answer


ALL = {
    "num_requests_running": of_pods(a=3, b=4),
    "num_requests_waiting": of_pods(a=0, b=1),
    "generation_tokens_total": of_pods(a=10, b=20),
    "num_preemptions_total": of_pods(a=0, b=0),
}


async def test_each_pods_numbers_come_from_one_query_a_family():
    answers = Answers(dict(ALL))
    metrics = await PrometheusSource(URL, answers).engine_metrics(SERVING)
    assert metrics["chat-b"] == EngineMetrics(4, 1, None, 20.0, 0.0)
    assert len(answers.asked) == 6


async def test_the_counters_of_speculative_decoding_are_told_where_there_are_any():
    drafts = {
        "spec_decode_num_draft_tokens_total": of_pods(a=500),
        "spec_decode_num_accepted_tokens_total": of_pods(a=300),
    }
    metrics = await PrometheusSource(URL, Answers(ALL | drafts)).engine_metrics(SERVING)
    speculating, plain = metrics["chat-a"], metrics["chat-b"]
    assert isinstance(speculating, EngineMetrics)
    assert (speculating.draft_tokens_total, speculating.accepted_tokens_total) == (500.0, 300.0)
    assert isinstance(plain, EngineMetrics)
    assert plain.draft_tokens_total is None


async def test_a_pod_without_series_is_unreachable_and_never_zero():
    answers = Answers(ALL | {"num_requests_waiting": of_pods(a=0)})
    metrics = await PrometheusSource(URL, answers).engine_metrics(SERVING)
    assert isinstance(metrics["chat-a"], EngineMetrics)
    silent = metrics["chat-b"]
    assert isinstance(silent, Unreachable)
    assert "num_requests_waiting" in silent.why


async def test_stale_values_are_no_values():
    answers = Answers(ALL | {"num_requests_running": of_pods(a=float("nan"), b=4)})
    metrics = await PrometheusSource(URL, answers).engine_metrics(SERVING)
    assert isinstance(metrics["chat-a"], Unreachable)


async def test_without_pods_nothing_is_asked():
    answers = Answers({})
    source = PrometheusSource(URL, answers)
    nobody = ServingPods("prod", (), 8000)
    assert await source.engine_metrics(nobody) == {}
    assert await source.violation_share(nobody, Slo(ttft_s=1), 60) is None
    assert answers.asked == []


async def test_violations_are_an_interval_from_the_increase_over_the_window():
    answers = Answers({"time_to_first_token": of_bounds(**{"le0_5": 80, "le1_0": 90, "le+Inf": 100})})
    share = await PrometheusSource(URL, answers).violation_share(SERVING, Slo(ttft_s=0.7), 600)
    assert share is not None
    assert share.lower == pytest.approx(0.1)
    assert share.upper == pytest.approx(0.2)
    assert share.requests == 100
    [query] = answers.asked
    assert "[600s]" in query
    assert "increase(" in query


async def test_requests_that_fail_are_misses_where_an_availability_is_promised():
    ended = [
        {"metric": {"finished_reason": r}, "value": [0, str(n)]} for r, n in (("stop", 97), ("abort", 1), ("error", 2))
    ]
    answers = Answers({"request_success_total": ended})
    share = await PrometheusSource(URL, answers).violation_share(SERVING, Slo(availability=0.99), 600)
    assert share is not None
    assert (share.lower, share.upper, share.requests) == (0.02, 0.02, 100)
    [query] = answers.asked
    assert query.startswith("sum by (finished_reason) (max by (finished_reason, pod, engine, model_name) (increase(")
    with pytest.raises(MetricsMissing, match="request_success_total"):
        await PrometheusSource(URL, Answers({})).violation_share(SERVING, Slo(availability=0.99), 600)


async def test_a_pod_that_two_jobs_scrape_counts_once():
    answers = Answers(dict(ALL))
    source = PrometheusSource(URL, answers)
    await source.engine_metrics(SERVING)
    assert all(re.match(r"sum by \(pod\) \(max by \(pod, engine, model_name\)", q) for q in answers.asked)


async def test_a_histogram_without_series_is_missing():
    source = PrometheusSource(URL, Answers({"time_to_first": of_bounds(**{"le+Inf": 1})}))
    with pytest.raises(MetricsMissing, match="request_time_per_output_token_seconds"):
        await source.violation_share(SERVING, Slo(ttft_s=1, tpot_s=0.1), 60)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (requests.ConnectionError("secret in url"), "ConnectionError"),
        (requests.TooManyRedirects("elsewhere"), "TooManyRedirects"),
        (PrometheusApiClientException("HTTP Status Code 503 (b'secret page')"), "HTTP 503"),
        (KeyError("data"), "not one of Prometheus"),
        (json.JSONDecodeError("no", "", 0), "not one of Prometheus"),
    ],
)
async def test_trouble_is_told_without_the_answers_body(error, why):
    source = PrometheusSource(URL, Answers({"vllm": error}))
    with pytest.raises(MetricsUnreachable) as trouble:
        await source.engine_metrics(SERVING)
    assert why in trouble.value.why
    assert "secret" not in str(trouble.value)


@pytest.mark.parametrize(
    "name", ["vllm:num_requests_running", "ray_vllm_num_requests_running", "kserve_vllm:num_requests_running"]
)
def test_the_selector_matches_the_metric_under_every_prefix(name):
    found = re.search(r'__name__=~"([^"]*)"', series("num_requests_running", SERVING))
    assert found is not None
    assert re.fullmatch(found[1].replace("\\\\", "\\"), name)


def test_the_selector_names_exactly_the_pods():
    found = re.search(r'pod=~"([^"]*)"', series("num_requests_running", SERVING))
    assert found is not None
    pattern = found[1].replace("\\\\", "\\")
    assert re.fullmatch(pattern, "chat-a")
    assert not re.fullmatch(pattern, "chat-a2")
    assert 'namespace="prod"' in series("num_requests_running", SERVING)


class FakePrometheus(BaseHTTPRequestHandler):
    """Answers the instant queries of `ALL`, as Prometheus does on the wire."""

    def do_POST(self) -> None:
        query = parse_qs(urlparse(self.path).query)["query"][0]
        result = next((v for k, v in ALL.items() if k in query), [])
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def prometheus_url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), FakePrometheus)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


async def test_the_librarys_client_speaks_to_a_server(prometheus_url):
    metrics = await PrometheusSource(prometheus_url).engine_metrics(SERVING)
    assert metrics["chat-a"] == EngineMetrics(3, 0, None, 10.0, 0.0)


async def test_a_server_that_is_not_there_is_unreachable_at_once():
    with HTTPServer(("127.0.0.1", 0), FakePrometheus) as unused:
        port = unused.server_port
    with pytest.raises(MetricsUnreachable, match="ConnectionError"):
        await PrometheusSource(f"http://127.0.0.1:{port}").engine_metrics(SERVING)


async def test_the_demand_is_the_peak_of_a_day():
    answers = Answers({"max_over_time": [{"metric": {}, "value": [0, "12.5"]}]})
    demand = await PrometheusSource(URL, answers).demand(SERVING)
    assert demand is not None
    assert demand.peak_requests_per_s == 12.5
    assert "time_to_first_token_seconds_count" in answers.asked[0]
    assert await PrometheusSource(URL, Answers({})).demand(SERVING) is None


async def test_readings_for_a_diagnosis_are_raw_samples_of_twenty_minutes_by_pod():
    labels = {"__name__": "vllm:num_requests_running", "pod": "chat-a", "engine": "0"}
    answers = Answers({"chat\\\\-a": [{"metric": labels, "values": [[10, "1"], [25, "2"]]}]})
    found = await PrometheusSource(URL, answers).readings(SERVING)
    assert [reading.gauges[Gauge.RUNNING] for reading in found["chat-a"]] == [1, 2]
    assert found["chat-b"] == ()
    assert all(query.endswith("[1200s]") for query in answers.asked)


async def test_gpu_use_is_found_under_the_exporters_own_pod_label_and_the_renamed_one():
    answers = Answers(
        {
            "by (exported_pod) (avg_over_time(DCGM_FI_DEV_GPU_UTIL": [
                {"metric": {"exported_pod": "chat-a"}, "value": [0, "40"]}
            ],
            "by (pod) (avg_over_time(DCGM_FI_PROF_SM_ACTIVE": of_pods(b=0.9),
        }
    )
    found = await PrometheusSource(URL, answers).gpu_windows(SERVING)
    assert found == {"chat-a": GpuWindow(0.4, None), "chat-b": GpuWindow(None, 0.9)}
