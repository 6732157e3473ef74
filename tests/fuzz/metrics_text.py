"""Whatever a pod answers on /metrics: numbers, families that are missing, or no exposition; never anything else.

`python -m tests.fuzz.metrics_text [-max_total_time=60 …]`; options are those of libFuzzer.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import atheris

from tests.fuzz import corpus_arguments

with atheris.instrument_imports(include=["kneekeeper.observe"]):
    from kneekeeper.observe.engine_metrics import TTFT, MetricsMissing, buckets, engine_metrics, parse_samples
    from kneekeeper.observe.engine_readings import reading_of
    from kneekeeper.observe.exposition import NotAnExposition

_GOLDEN = Path(__file__).parents[1] / "contract/golden/vllm-0.32-metrics.txt"
_LEAST = (
    b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:num_preemptions_total 0\n"
    b'vllm:generation_tokens_total 9\nvllm:cache_config_info{block_size="16",num_gpu_blocks="9"} 1\n'
)
WORDS = (
    *("vllm:num_requests_running", "vllm:time_to_first_token_seconds_bucket", 'le="+Inf"', "NaN", "-Inf", "1e999"),
    *("kv_cache_size_tokens", "# TYPE", "# HELP", "counter", "histogram", "ray_vllm_", " 1700000000000", "{", "}"),
)


def check(data: bytes) -> None:
    """Read one answer. Raises AssertionError where a promise is broken."""
    try:
        samples = parse_samples(data.decode("utf-8", "replace"))
    except NotAnExposition:
        return
    try:
        metrics = engine_metrics(samples)
    except MetricsMissing:
        pass
    else:
        assert math.isfinite(metrics.generation_tokens_total)
        assert metrics.kv_cache_usage is None or math.isfinite(metrics.kv_cache_usage)
    histogram = buckets(samples, TTFT)
    assert histogram is None or math.inf in histogram
    reading = reading_of(1.0, samples)
    assert all(map(math.isfinite, (*reading.gauges.values(), *reading.counters.values())))


def main() -> None:
    seeds = (_LEAST, _GOLDEN.read_bytes())
    atheris.Setup([*sys.argv, *corpus_arguments("metrics_text", seeds, WORDS)], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
