"""The queries for what is now, as a real Prometheus answers them: stale samples, resets, pods that two jobs scrape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kneekeeper.api.stage import Slo
from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.pods import parse_pod
from kneekeeper.observe.prometheus import PrometheusSource
from tests.contract.test_history_queries import promtool
from tests.unit.kube_objects import pod
from tests.unit.test_prometheus_source import URL, Answers

SERVING = ServingPods("prod", (parse_pod(pod("chat-a"), "vllm"), parse_pod(pod("chat-b"), "vllm")), 8000)
RUNNING = "vllm:num_requests_running"
TTFT_BUCKET = "vllm:time_to_first_token_seconds_bucket"


async def query_for(word: str) -> str:
    """The first one that holds this word."""
    asked = Answers({})
    source = PrometheusSource(URL, asked)
    await source.engine_metrics(SERVING)
    with pytest.raises(Exception, match="metrics are missing"):
        await source.violation_share(SERVING, Slo(ttft_s=1.0), 600.0)
    return next(query for query in asked.asked if word in query)


def series(name: str, values: str, pod_name: str = "chat-a", job: str = "pods", **labels: str) -> dict[str, str]:
    told = {"namespace": "prod", "pod": pod_name, "engine": "0", "model_name": "tiny", "job": job} | labels
    selector = ",".join(f'{label}="{value}"' for label, value in told.items())
    return {"series": f"{name}{{{selector}}}", "values": values}


def promises(folder: Path, query: str, scraped: list[dict[str, str]], expected: dict[str, float]) -> None:
    """What a Prometheus that scraped this every 15 s answers after ten minutes."""
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    case: dict[str, Any] = {"expr": query, "eval_time": "10m", "exp_samples": samples}
    test = {"interval": "15s", "input_series": scraped, "promql_expr_test": [case]}
    path = folder / "tests.yaml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}), encoding="utf-8")
    promtool("test", "rules", str(path))


async def test_what_was_not_scraped_for_minutes_is_not_present(tmp_path: Path):
    """Prometheus itself would tell it for five, as when it does not scrape any more and still answers."""
    scraped = [series(RUNNING, "3+0x40"), series(RUNNING, "9+0x28", "chat-b")]  # the second ends after seven minutes
    promises(tmp_path, await query_for("num_requests_running"), scraped, {'{pod="chat-a"}': 3.0})


async def test_a_pod_that_is_scraped_once_a_minute_is_present(tmp_path: Path):
    promises(
        tmp_path, await query_for("num_requests_running"), [series(RUNNING, "3 _ _ _ " * 9)], {'{pod="chat-a"}': 3.0}
    )


async def test_a_scrape_that_failed_ends_what_was_before(tmp_path: Path):
    promises(tmp_path, await query_for("num_requests_running"), [series(RUNNING, "3+0x38 stale")], {})


async def test_a_pod_that_two_jobs_scrape_counts_once_and_ranks_are_summed(tmp_path: Path):
    scraped = [series(RUNNING, "3+0x40", job=job, engine=rank) for job in ("a", "b") for rank in ("0", "1")]
    promises(tmp_path, await query_for("num_requests_running"), scraped, {'{pod="chat-a"}': 6.0})


async def test_requests_are_counted_across_a_restart(tmp_path: Path):
    """Ten a scrape over the ten minutes, and a counter that begins anew in the middle of them."""
    scraped = [series(TTFT_BUCKET, "0+10x20 0+10x20", le="+Inf")]
    promises(tmp_path, await query_for("bucket"), scraped, {'{le="+Inf"}': 390.0})
