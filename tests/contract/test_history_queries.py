"""The queries for the history of production, as a real Prometheus understands them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.cluster.packages import ensure_packages
from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.pods import parse_pod
from kneekeeper.observe.prometheus import PrometheusSource
from tests.unit.kube_objects import pod
from tests.unit.test_production_history import ENGINES, TRAFFIC
from tests.unit.test_prometheus_source import URL, Answers

SCRAPE_S = 15
POD = 'namespace="prod",pod="chat-a",engine="0",model_name="tiny"'
SERIES = {
    "vllm:inter_token_latency_seconds_sum": "0+60x",
    "vllm:inter_token_latency_seconds_count": "0+1500x",
    "vllm:num_requests_running": "5+0x",
    "vllm:num_requests_waiting": "2+0x",
    "vllm:kv_cache_usage_perc": "0.25+0x",
    "vllm:generation_tokens_total": "0+1500x",
    "vllm:prompt_tokens_total": "0+3000x",
    "vllm:num_preemptions_total": "0+0x",
    "vllm:time_to_first_token_seconds_count": "0+30x",
    "vllm:request_prompt_tokens_sum": "0+3000x",
    "vllm:request_generation_tokens_sum": "0+1500x",
}
"""A quarter of an hour of a steady engine, at every scrape so much more."""

EXPECTED = {
    "inter_token_latency_seconds_sum": 4.0,
    "inter_token_latency_seconds_count": 100.0,
    "num_requests_running": 5.0,
    "kv_cache_usage_perc": 0.25,
    "generation_tokens_total": 100.0,
    "time_to_first_token_seconds_count": 2.0,
}
"""Of the first query that holds this word, in the newest window."""


async def queries() -> list[str]:
    asked = Answers(ENGINES | TRAFFIC)
    await PrometheusSource(URL, asked).history(ServingPods("prod", (parse_pod(pod("chat-a"), "vllm"),), 8000))
    return asked.asked


def promtool(*arguments: str) -> None:
    ensure_packages({"promtool": "prometheus"})
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_prometheus_accepts_every_query(tmp_path: Path):
    rules = [{"record": f"query:{i}", "expr": f"last_over_time({query})"} for i, query in enumerate(await queries())]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", str(path))


@pytest.mark.parametrize("twice", [False, True], ids=["one job", "two jobs"])
async def test_prometheus_answers_with_rates_and_means_of_a_window(tmp_path: Path, twice: bool):
    asked, jobs = await queries(), ["a", "b"] if twice else ["a"]
    scrapes = 15 * 60 // SCRAPE_S
    series = [
        {"series": f'{name}{{{POD},job="{job}"}}', "values": f"{values}{scrapes}"}
        for name, values in SERIES.items()
        for job in jobs
    ]
    cases = []
    for word, value in EXPECTED.items():
        query = next(q for q in asked if word in q)
        labels = '{engine="0", pod="chat-a"}'
        cases.append(
            {
                "expr": f"last_over_time({query})",
                "eval_time": "15m",
                "exp_samples": [{"labels": labels, "value": value}],
            }
        )
    content = {
        "evaluation_interval": "1m",
        "tests": [{"interval": f"{SCRAPE_S}s", "input_series": series, "promql_expr_test": cases}],
    }
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    promtool("test", "rules", str(path))
