"""Settings as fields of the objects from which controllers make workloads: written with tests, and put back exactly."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.model import Setting
from kneekeeper.domain.manifests import ManifestObject
from kneekeeper.domain.targets import Asked, Objects
from kneekeeper.domain.targets.fields import (
    LONGEST_VALUE,
    NotWritable,
    field_changes,
    json_patch,
    pointer,
    reversed_changes,
    since_the_first,
    stand_as,
    stand_as_before,
)

SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)
FLAGS = ["--max-num-seqs=64", "--max-num-batched-tokens=4096"]


def source(kind: str, api_version: str, spec: dict[str, Any], **more: Any) -> Objects:
    value = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "chat", "namespace": "prod"}, "spec": spec}
    return Objects((ManifestObject(0, (), value | more),))


def patched(value: Any, operations: list[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(dict(value))
    for operation in operations:
        steps = operation["path"].split("/")[1:]
        *parents, last = (step.replace("~1", "/").replace("~0", "~") for step in steps)
        place = made
        for step in parents:
            place = place[step]
        if operation["op"] == "test":
            assert place.get(last) == operation["value"]
        elif operation["op"] == "remove":
            del place[last]
        else:
            place[last] = operation["value"]
    return made


INFERENCE_SERVICE = source(
    "InferenceService",
    "serving.kserve.io/v1beta1",
    {"predictor": {"model": {"modelFormat": {"name": "huggingface"}, "args": ["--max-model-len=8192"]}}},
)
BARE_SERVICE = source(
    "InferenceService", "serving.kserve.io/v1beta1", {"predictor": {"model": {"modelFormat": {"name": "huggingface"}}}}
)
MODEL = source("Model", "kubeai.org/v1", {"engine": "VLLM", "args": ["--max-num-seqs=8", "--seed=1"]})
RUNTIME = source("VLLMRuntime", "production-stack.vllm.ai/v1alpha1", {"model": {"modelURL": "m"}})


@pytest.mark.parametrize(
    ("objects", "written"),
    [
        (INFERENCE_SERVICE, {"/spec/predictor/model/args": ["--max-model-len=8192", *FLAGS]}),
        (BARE_SERVICE, {"/spec/predictor/model/args": FLAGS}),
        (RUNTIME, {"/spec/model/maxNumSeqs": 64, "/spec/vllmConfig": {"extraArgs": FLAGS[1:]}}),
        (MODEL, {"/spec/args": ["--max-num-seqs=64", "--seed=1", FLAGS[1]]}),
    ],
    ids=["KServe", "KServe without args", "production stack", "KubeAI"],
)
def test_a_setting_is_written_and_taken_back_exactly(objects, written):
    value = objects.items[0].value
    changes = field_changes(objects, Asked(SETTING, None))
    assert isinstance(changes, tuple)
    assert {c.path: json.loads(c.after or "") for c in changes} == written
    assert stand_as_before(value, changes)
    after = patched(value, json_patch(value, changes))
    assert stand_as(after, changes)
    assert json_patch(after, changes) == []
    assert patched(after, json_patch(after, reversed_changes(changes))) == value


def test_what_an_adapter_only_recommends_is_not_written():
    workspace = source("Workspace", "kaito.sh/v1beta1", {}, inference={"preset": {"name": "m"}})
    found = field_changes(workspace, Asked(SETTING, None))
    assert isinstance(found, NotWritable)
    assert found.reason == "ConfigMapNotFound"


def test_a_value_that_no_status_could_hold_is_not_written():
    args = ["--chat-template", "x" * LONGEST_VALUE]
    long = source("InferenceService", "serving.kserve.io/v1beta1", {"predictor": {"model": {"args": args}}})
    found = field_changes(long, Asked(SETTING, None))
    assert isinstance(found, NotWritable)
    assert found.reason == "FieldTooLong"


def test_two_changes_in_a_row_go_back_to_the_first_value():
    first = field_changes(RUNTIME, Asked(SETTING, None))
    assert isinstance(first, tuple)
    value = patched(RUNTIME.items[0].value, json_patch(RUNTIME.items[0].value, first))
    second = field_changes(
        Objects((ManifestObject(0, (), value),)), Asked(Setting(max_num_seqs=32, max_num_batched_tokens=4096), None)
    )
    assert isinstance(second, tuple)
    latest = patched(value, json_patch(value, second))
    joined = since_the_first(first, second)
    assert patched(latest, json_patch(latest, reversed_changes(joined))) == RUNTIME.items[0].value


def test_keys_with_slashes_are_escaped():
    assert pointer(("metadata", "annotations", "a/b~c", 0)) == "/metadata/annotations/a~1b~0c/0"


_WORDS = st.sampled_from(
    [
        "--max-num-seqs=8",
        "--max_num_seqs=16",
        "--max-num-batched-tokens=8k",
        "--seed=1",
        "--dtype=half",
        "--enforce-eager",
    ]
)


@given(args=st.one_of(st.none(), st.lists(_WORDS, max_size=6)), sequences=st.integers(1, 1024))
def test_whatever_the_args_a_write_can_be_taken_back_and_is_not_repeated(args, sequences):
    spec = {"engine": "VLLM"} if args is None else {"engine": "VLLM", "args": args}
    model = source("Model", "kubeai.org/v1", spec)
    changes = field_changes(model, Asked(Setting(max_num_seqs=sequences, max_num_batched_tokens=4096), None))
    assert isinstance(changes, tuple)
    value = model.items[0].value
    after = patched(value, json_patch(value, changes))
    assert stand_as(after, changes)
    assert json_patch(after, changes) == []
    assert patched(after, json_patch(after, reversed_changes(changes))) == value
