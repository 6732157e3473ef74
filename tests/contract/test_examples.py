"""Every file in examples/ is what an API server stores and the operator acts on; every query is one that Prometheus
answers as its comment says."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from e2e.examples import RESIZED, differences, fitted
from e2e.simulated import Simulated
from kneekeeper.api.crds import KINDS
from kneekeeper.api.model import API_VERSION
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.cli.main import main
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.targets.kinds import target_kind
from tests.contract.alert_cases import Series
from tests.contract.chart_rendering import NEWEST_KUBERNETES, OLDEST_KUBERNETES
from tests.contract.test_crds import shape_error
from tests.contract.test_monitoring import groups, inputs, named_in, promtool, sample_names

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))
SCALERS = ("keda-capacity.yaml", "hpa-capacity.yaml")
OF_KUBERNETES = ("v1", "apps/v1", "autoscaling/v2")
REPLICAS_AIMED_AT = 0.8

CHAT = 'namespace="llm",profile="chat"'
PODS = ('namespace="llm",pod="chat-a"', 'namespace="llm",pod="chat-b"')
LOAD: Series = {
    **{f"vllm:request_success_total{{{pod}}}": "0+360x20" for pod in PODS},
    **{f"vllm:num_requests_running{{{pod}}}": "40x20" for pod in PODS},
    **{f"vllm:num_requests_waiting{{{pod}}}": "20x20" for pod in PODS},
}
CAPACITY: Series = {
    f'kneekeeper_replica_capacity_requests_per_second{{{CHAT},pod="chat-a"}}': "6x20",
    f'kneekeeper_replica_capacity_requests_per_second{{{CHAT},pod="chat-b"}}': "4x20",
    f'kneekeeper_replica_knee_concurrency{{{CHAT},pod="chat-a"}}': "48x20",
    f'kneekeeper_replica_knee_concurrency{{{CHAT},pod="chat-b"}}': "48x20",
}
FILLED_BY_RATE, FILLED_BY_REQUESTS = 2 * 6 / 5, 2 * (40 + 20) / 48
"""Replicas that the load above fills: two pods with 6 requests a second and 60 requests each, against the average of
their capacities and knees."""


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def content(document: dict[str, Any]) -> dict[str, Any]:
    """Without what names its kind."""
    return {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}


def queries(name: str) -> list[str]:
    for document in documents(EXAMPLES / name):
        if document["kind"] == "ScaledObject":
            return [trigger["metadata"]["query"] for trigger in document["spec"]["triggers"]]
        if document["kind"] == "ConfigMap":
            rules = yaml.safe_load(document["data"]["config.yaml"])["externalRules"]
            return [rule["metricsQuery"] for rule in rules]
    raise AssertionError(f"{name} holds no query")


examples = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


@examples
def test_an_example_says_what_it_is_for(path):
    assert path.read_text(encoding="utf-8").startswith("# ")


@examples
def test_every_object_is_what_its_api_server_stores(path):
    for document in documents(path):
        own = next((kind for kind in KINDS if kind.name == document["kind"]), None)
        if own is not None:
            assert document["apiVersion"] == API_VERSION
            assert shape_error(own, document["spec"]) is None
            own.resource.model_validate(content(document))
        elif document["apiVersion"] in OF_KUBERNETES:
            for version in (OLDEST_KUBERNETES, NEWEST_KUBERNETES):
                kubernetes_validate.validate(document, version, strict=True)


@examples
def test_every_profile_is_one_that_the_operator_acts_on(path):
    for document in documents(path):
        if document["kind"] == "ServingProfile":
            assert spec_problem(ServingProfile.model_validate(content(document)).spec) is None


@examples
def test_the_workload_beside_a_profile_is_its_target_and_takes_the_limits(path, capfd):
    found = documents(path)
    workloads = [d for d in found if target_kind(d["apiVersion"], d["kind"]) is not None]
    for workload in workloads:
        profiles = [ServingProfile.model_validate(content(d)) for d in found if d["kind"] == "ServingProfile"]
        refs = [(p.spec.target_ref.api_version, p.spec.target_ref.kind, p.spec.target_ref.name) for p in profiles]
        assert refs == [(workload["apiVersion"], workload["kind"], workload["metadata"]["name"])]
        code = main(["patch", "--file", str(path), "--max-num-seqs", "64", "--max-num-batched-tokens", "4096"])
        told = capfd.readouterr()
        assert code == 0, told.err
        assert "4096" in told.out


def test_both_scalers_ask_the_same():
    keda, hpa = (queries(name) for name in SCALERS)
    assert [" ".join(query.split()) for query in keda] == [" ".join(query.split()) for query in hpa]


@pytest.mark.parametrize("name", SCALERS)
def test_scalers_use_metrics_that_exist(name):
    for query in queries(name):
        assert named_in(query)
        assert named_in(query) <= sample_names()


def test_queries_tell_the_replicas_that_a_load_fills_and_nothing_without_a_capacity(tmp_path):
    rate, requests = queries(SCALERS[0])
    known = [(rate, [{"value": FILLED_BY_RATE}]), (requests, [{"value": FILLED_BY_REQUESTS}])]
    unknown: list[tuple[str, list[dict[str, float]]]] = [(query, []) for query in (rate, requests)]
    tests = [
        {
            "interval": "1m",
            "input_series": inputs(series),
            "promql_expr_test": [
                {"expr": query, "eval_time": "15m", "exp_samples": [{"labels": "{}", **s} for s in samples]}
                for query, samples in expected
            ],
        }
        for series, expected in ((LOAD | CAPACITY, known), (LOAD, unknown))
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}), encoding="utf-8")
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    promtool("test", "rules", str(tmp_path / "tests.yaml"))


def test_scalers_aim_below_the_capacity():
    """Of a load that fills 2.5 replicas, four are wanted: two are beyond their knee, three have no room for bursts."""
    keda, hpa = (documents(EXAMPLES / name) for name in SCALERS)
    thresholds = {float(trigger["metadata"]["threshold"]) for trigger in keda[0]["spec"]["triggers"]}
    targets = {metric["external"]["target"]["averageValue"] for metric in hpa[1]["spec"]["metrics"]}
    assert thresholds == {REPLICAS_AIMED_AT}
    assert targets == {f"{1000 * REPLICAS_AIMED_AT:.0f}m"}
    assert math.ceil(max(FILLED_BY_RATE, FILLED_BY_REQUESTS) / REPLICAS_AIMED_AT) == 4


@examples
def test_end_to_end_an_example_differs_from_its_file_in_nothing_but_its_size(path):
    engine = Simulated(image="kneekeeper:test")
    changed = [each for each in differences(path.stem, engine) if not any(re.fullmatch(p, each) for p in RESIZED)]
    assert changed == []
    for document in fitted(path.stem, "test", engine):
        if document["kind"] == "ServingProfile":
            assert spec_problem(ServingProfile.model_validate(content(document)).spec) is None


def test_a_change_of_what_is_decided_is_no_change_of_size():
    decided = ("spec/updatePolicy/mode", "spec/probe/allow/0", "spec/targetRef/name", "spec/objective")
    assert not [each for each in decided if any(re.fullmatch(pattern, each) for pattern in RESIZED)]
