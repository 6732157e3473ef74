"""Scrapes and range vectors as readings, under the names of every release."""

from __future__ import annotations

from pathlib import Path

from kneekeeper.domain.diagnose import Counter, Family, Gauge
from kneekeeper.observe.engine_metrics import parse_samples
from kneekeeper.observe.engine_readings import reading_of, readings_of_matrix

OLD = """
vllm:num_requests_running{engine="0",model_name="m"} 3
vllm:num_requests_running{engine="1",model_name="m"} 4
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="m"} 7
vllm:time_per_output_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 2
vllm:time_per_output_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 5
vllm:time_per_output_token_seconds_sum{engine="0",model_name="m"} 1.5
vllm:time_per_output_token_seconds_count{engine="0",model_name="m"} 5
"""


def test_older_names_are_read_as_the_present_ones_and_ranks_are_counted():
    reading = reading_of(1.0, parse_samples(OLD))
    assert reading.gauges == {Gauge.RUNNING: 7.0, Gauge.KV_USAGE: 0.5}
    assert reading.counters == {Counter.PREFIX_HITS: 7.0}
    assert reading.histograms[Family.ITL].mean == 0.3
    assert reading.engines == 2
    assert Family.TTFT in reading.missing
    assert Family.ITL not in reading.missing


def test_a_range_vector_becomes_one_reading_a_scrape_of_the_job_that_saw_most():
    labels = {"__name__": "vllm:num_requests_running", "pod": "a", "job": "one", "engine": "0"}
    matrix = [
        {"metric": labels, "values": [[10, "1"], [25, "2"], [40, "3"]]},
        {"metric": labels | {"__name__": "vllm:num_requests_waiting"}, "values": [[10, "0"], [40, "5"]]},
        {"metric": labels | {"job": "two"}, "values": [[11, "9"]]},
    ]
    found = readings_of_matrix(matrix)
    assert [reading.at_s for reading in found] == [10, 25, 40]
    assert [reading.gauges[Gauge.RUNNING] for reading in found] == [1, 2, 3]
    assert found[1].missing >= {Gauge.WAITING}
    assert readings_of_matrix([]) == ()


def test_the_golden_exposition_of_vllm_has_every_family():
    golden = Path(__file__).parents[1] / "contract" / "golden"
    text = next(path for path in sorted(golden.rglob("*.txt")) if "vllm:e2e_request" in path.read_text())
    assert reading_of(0.0, parse_samples(text.read_text())).missing == frozenset()
