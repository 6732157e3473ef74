"""A file may hold anything where the API server would not: every command ends with an exit code and a sentence."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kneekeeper.cli.main import main

MANIFESTS = Path(__file__).parent.parent / "cases" / "manifests"
CASES = sorted(path.stem for path in MANIFESTS.glob("*.yaml") if not path.stem.endswith(".expected"))
DELETED = object()
ODD: list[Any] = [DELETED, None, 1, "x", [], {}, [1], {"a": 1}, True, [None], [{}], "--max-num-seqs", [["x"]]]


def documents_of(case: str) -> list[Any]:
    return [d for d in yaml.safe_load_all((MANIFESTS / f"{case}.yaml").read_text()) if d]


def paths_in(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    below = [found for key, item in children for found in paths_in(item, (*path, key))]
    return [path, *below] if path else below


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, str]:
    """A case's target, and its objects with one or two values replaced or deleted."""
    case = draw(st.sampled_from(CASES))
    documents = documents_of(case)
    for _ in range(draw(st.integers(1, 2))):
        *parents, last = draw(st.sampled_from(paths_in(documents)))
        if not parents:
            continue
        place: Any = documents
        for key in parents:
            place = place[key]
        value = draw(st.sampled_from(ODD))
        if value is DELETED:
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    target = yaml.safe_load((MANIFESTS / f"{case}.expected.yaml").read_text())["target"]
    return f"{target['kind']}/{target['name']}", yaml.safe_dump_all(documents)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damaged())
def test_no_damaged_object_stops_a_command_without_an_answer(tmp_path, capfd, case):
    target, text = case
    file = tmp_path / "objects.yaml"
    file.write_text(text)
    limits = ["--max-num-seqs=64", "--max-num-batched-tokens=4096"]
    assert main(["patch", "--file", str(file), *limits, "--json", "--target", target]) in (0, 2, 3, 4)
    assert capfd.readouterr().err.strip()
    assert main(["check", "--file", str(file), "--engine-version", "0.32.0"]) in (0, 1, 2, 4)


def test_the_field_that_is_wrong_is_named(tmp_path, capfd):
    documents = documents_of("01-args-equals")
    documents[0]["spec"]["template"]["spec"]["containers"][0]["env"] = [{"value": "x"}]
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    limits = ["--max-num-seqs=64", "--max-num-batched-tokens=4096"]
    assert main(["patch", "--file", str(file), *limits, "--target", "Deployment/chat-8b"]) == 4
    assert "spec/template/spec/containers[0]/env[0]/name of Deployment chat-8b" in capfd.readouterr().err


@pytest.mark.parametrize(
    "kind", ["Deployment", "InferenceService", "VLLMRuntime", "Model", "RayService", "Workspace", "Pod"]
)
def test_an_object_with_nothing_in_it_is_refused(kind, tmp_path, capfd):
    groups = {"Deployment": "apps/v1", "InferenceService": "serving.kserve.io/v1beta1", "Model": "kubeai.org/v1"}
    groups |= {
        "VLLMRuntime": "production-stack.vllm.ai/v1alpha1",
        "RayService": "ray.io/v1",
        "Workspace": "kaito.sh/v1",
    }
    file = tmp_path / "objects.yaml"
    file.write_text(f"apiVersion: {groups.get(kind, 'v1')}\nkind: {kind}\nmetadata: {{name: a}}\n")
    limits = ["--max-num-seqs=64", "--max-num-batched-tokens=4096"]
    assert main(["patch", "--file", str(file), *limits, "--target", f"{kind}/a"]) in (3, 4)
    capfd.readouterr()
