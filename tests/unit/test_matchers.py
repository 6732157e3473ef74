"""What a user adds to every query narrows it, and can do nothing else."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.serving_profile import MetricsSpec, ServingProfileSpec
from kneekeeper.api.stage import Slo
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.observe.matchers import matchers_of, quoted
from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.prometheus import PrometheusSource
from tests.unit.plan.circumstances import PROFILE_SPEC
from tests.unit.test_prometheus_source import SERVING, URL, Answers

GAPS = {"inter_token_latency_seconds_sum": [{"metric": {"pod": "chat-a"}, "values": [[300.0, "1"]]}]}
_STRING = re.compile(r'"((?:[^"\\\n]|\\[\\"n])*)"')
"""A double-quoted string of PromQL, of the escapes that are written here."""


@given(st.text(max_size=60))
def test_every_value_stays_inside_its_string_and_means_itself(value: str):
    found = _STRING.fullmatch(f'"{quoted(value)}"')
    assert found is not None
    meant = re.sub(r"\\(.)", lambda each: {"n": "\n"}.get(each[1], each[1]), found[1])
    assert meant == value


@pytest.mark.parametrize("value", ['"} or vector(1) #', "\\", '\\"', "a\nb", "{{ .Values.x }}", ".*", "\u202e"])
def test_hostile_values_are_one_matcher(value: str):
    assert re.fullmatch(rf",job={_STRING.pattern}", matchers_of({"job": value}))


@pytest.mark.parametrize("name", ['a="b"} or vector(1) #', "", "0a", "a-b", "__name__", "pod", "le", "namespace"])
def test_a_name_that_may_not_be_matched_selects_nothing_and_is_refused(name: str):
    assert matchers_of({"job": "vllm", name: "x"}) == ',job="vllm",__name__=""'
    spec = PROFILE_SPEC | {"metrics": {"matchLabels": {name: "x"}}}
    problem = spec_problem(ServingProfileSpec.model_validate(spec))
    assert problem is not None
    assert problem.reason == "InvalidMatchLabels"


def test_a_profile_with_labels_is_accepted():
    spec = PROFILE_SPEC | {"metrics": {"matchLabels": {"cluster": "prod-eu", "job": "vllm"}}}
    assert spec_problem(ServingProfileSpec.model_validate(spec)) is None


Call = Callable[[PrometheusSource, ServingPods], Awaitable[Any]]


@pytest.mark.parametrize(
    "call",
    [
        lambda source, pods: source.engine_metrics(pods),
        lambda source, pods: source.demand(pods),
        lambda source, pods: source.readings(pods),
        lambda source, pods: source.gpu_windows(pods),
        lambda source, pods: source.history(pods),
        lambda source, pods: source.records(pods),
    ],
    ids=["engine_metrics", "demand", "readings", "gpu_windows", "history", "records"],
)
async def test_every_selector_of_every_query_has_the_labels(call: Call):
    asked = Answers(GAPS)
    await call(PrometheusSource(URL, asked).narrowed({"cluster": "prod", "job": 'v"l'}), SERVING)
    assert asked.asked
    for query in asked.asked:
        selectors = query.count("namespace=")
        assert selectors
        assert query.count(r',cluster="prod",job="v\"l"}') == selectors, query


async def test_violations_are_of_series_with_the_labels():
    buckets = [{"metric": {"le": le}, "value": [0, "5"]} for le in ("1.0", "+Inf")]
    asked = Answers({"bucket": buckets})
    await PrometheusSource(URL, asked).narrowed({"job": "vllm"}).violation_share(SERVING, Slo(ttft_s=1.0), 60)
    assert [query.count(',job="vllm"}') for query in asked.asked] == [1]


async def test_one_server_is_one_queue_whatever_it_is_asked_for():
    source = PrometheusSource(URL, Answers({}))
    assert source.narrowed({"job": "a"})._queries is source._queries


def test_without_labels_queries_are_as_before():
    assert matchers_of(MetricsSpec().match_labels) == ""
