"""The Prometheus text format: as prometheus_client reads it, and faster."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kneekeeper.observe.exposition import NotAnExposition, Sample, series_of

GOLDEN = Path(__file__).parents[1] / "contract/golden/vllm-0.32-metrics.txt"
ALL = re.compile("")


def by_prometheus(text: str) -> list[Sample]:
    families = text_string_to_metric_families(text)
    return [Sample(each.name, each.labels, float(each.value)) for family in families for each in family.samples]


def test_the_golden_file_is_read_as_prometheus_client_reads_it():
    text = GOLDEN.read_text()
    read = list(series_of(text, ALL))
    assert len(read) > 300
    assert read == by_prometheus(text)


@given(value=st.floats(allow_nan=False), label=st.text(), name=st.sampled_from(["vllm:a", "vllm:a_total", "b"]))
def test_labels_of_any_text_and_any_number_are_read_as_prometheus_client_reads_them(value, label, name):
    registry = CollectorRegistry()
    Gauge(name.replace("_total", "_gauge"), "What\nis told.", ["one", "two"], registry=registry).labels(
        label, "}{"
    ).set(value)
    Histogram("h", "", ["one"], registry=registry, buckets=(0.5,)).labels(label).observe(1)
    Counter("c", "", registry=registry).inc()
    text = generate_latest(registry).decode()
    assert list(series_of(text, ALL)) == by_prometheus(text)


@pytest.mark.parametrize(
    "line",
    [
        'a{b="c"} 1',
        'a {b = "c" , d="e",} 1 1700000000000',
        "a\t1",
        "a +Inf",
        "a -Inf",
        "# TYPE a counter\na 3",
        "# TYPE a_total counter\na_total 3",
        "# HELP a {",
        "#",
        "",
        r'a{b="\\\"\n}"} 1e3',
    ],
)
def test_what_the_format_allows_is_read_as_prometheus_client_reads_it(line: str):
    assert list(series_of(f"{line}\n", ALL)) == by_prometheus(f"{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        *("a", "a b", "a 1 2 3", "1a 1", "a{b} 1", 'a{b="c} 1', 'a{b="c"', 'a{b="c"}', 'a{b="c" d="e"} 1', "a 1_000"),
        *('a{b="c",b="d"} 1', "<html>", "{} 1", 'a}{b="c"} 1', '{"error": "no"}'),
    ],
)
def test_what_the_format_does_not_allow_is_refused(line: str):
    with pytest.raises(NotAnExposition):
        list(series_of(f"good 1\n{line}\n", ALL))


def test_a_number_may_be_none():
    [sample] = series_of("a NaN", ALL)
    assert math.isnan(sample.value)


def test_only_names_that_begin_as_asked_are_read_and_the_beginning_is_left_out():
    text = "vllm:a 1\nother_vllm:a 2\nvllm_b 3\n"
    assert list(series_of(text, re.compile("vllm[:_]"))) == [Sample("a", {}, 1.0), Sample("b", {}, 3.0)]


@pytest.mark.parametrize("hostile", ["a{" + "}" * 200_000, 'a{b="' + '\\"' * 200_000, "a " + "1 " * 200_000])
def test_hostile_lines_are_refused_in_a_time_that_grows_with_their_length_alone(hostile: str):
    began = time.process_time()
    with pytest.raises(NotAnExposition):
        list(series_of(hostile, ALL))
    assert time.process_time() - began < 1.0  # with a square of it, it would take minutes
