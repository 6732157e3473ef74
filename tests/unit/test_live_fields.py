"""The plugin gets into a template and out of it again without a trace, and with nothing of the user's in the way."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords, FieldChange
from kneekeeper.domain.live_delivery import (
    LIMITS_KEY,
    PLUGIN_CONTAINER,
    Delivery,
    PluginImage,
    delivery_in,
    without_plugin,
)
from kneekeeper.domain.live_environment import PLUGIN_FOLDER
from kneekeeper.domain.live_fields import (
    concerns_plugin,
    delivery_fields,
    limits_as_text,
    only_switches,
    removal_fields,
    switch_fields,
    takes_plugin_out,
)
from kneekeeper.domain.live_production import setting_in
from kneekeeper.domain.observation import WorkloadView
from kneekeeper.domain.targets.fields import NotWritable, by_object, json_patch, reversed_changes
from kneekeeper.observe.workloads import parse_workload
from tests.unit.plan.live_world import patched

STARTED, APPROVED, OTHER = (
    Setting(max_num_seqs=64, max_num_batched_tokens=4096),
    Setting(max_num_seqs=16, max_num_batched_tokens=1024),
    Setting(max_num_seqs=8, max_num_batched_tokens=2048),
)
DELIVERY = Delivery("vllm", "chat-limits", STARTED, APPROVED)
IMAGE = PluginImage("registry.example.com/kneekeeper:1", pull_secrets=("ours",))
WORDS = ContainerWords(command=["vllm", "serve"], args=["m", "--max-num-seqs=64", "--max-num-batched-tokens=4096"])
BACK = ContainerWords(command=["vllm", "serve"], args=["m", "--max-num-seqs=8", "--max-num-batched-tokens=2048"])


def deployment(more_of_the_engine: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    engine = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["serve", "m"], **more_of_the_engine}
    spec = {"containers": [{"name": "exporter", "image": "e:1", "args": ["x"]}, engine], **more}
    metadata = {"name": "chat", "namespace": "prod", "uid": "u", "resourceVersion": "1", "generation": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "chat"}}, "template": {"spec": spec}},
    }


def view(made: dict[str, Any], limits: str | None = None) -> WorkloadView:
    metadata = {"name": "chat-limits", "namespace": "prod"}
    found = [] if limits is None else [{"kind": "ConfigMap", "metadata": metadata, "data": {LIMITS_KEY: limits}}]
    return parse_workload(deepcopy(made), found)


def written(made: dict[str, Any], fields: tuple[FieldChange, ...]) -> dict[str, Any]:
    after = deepcopy(made)
    for group in by_object(fields):
        assert group[0].kind == "Deployment"
        patched(after, json_patch(after, group))
    return after


def delivered(made: dict[str, Any]) -> tuple[dict[str, Any], tuple[FieldChange, ...]]:
    seen = view(made)
    fields = delivery_fields(seen, seen.containers[1].env, WORDS, DELIVERY, IMAGE)
    assert not isinstance(fields, NotWritable)
    return written(made, fields), fields


KNOWN: list[dict[str, Any]] = [
    {"name": "HF_HOME", "value": "/m"},
    {"name": "PYTHONPATH", "value": "/app"},
    {"name": "PYTHONPATH", "value": "/app:"},
    {"name": "PYTHONPATH", "value": ""},
    {"name": "VLLM_PLUGINS", "value": "one"},
    {"name": "VLLM_PLUGINS", "value": ""},
    {"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
]
VARIABLES = st.lists(st.sampled_from(KNOWN), unique_by=lambda variable: str(variable["name"]), min_size=1)
OPTIONAL = st.fixed_dictionaries(
    {},
    optional={
        "env": VARIABLES,
        "volumeMounts": st.just([{"name": "m", "mountPath": "/m"}, {"name": "m", "mountPath": "/n"}]),
        "command": st.just(["vllm"]),
    },
)
OF_THE_POD = st.fixed_dictionaries(
    {},
    optional={
        "initContainers": st.just([{"name": "fetch", "image": "f:1"}]),
        "volumes": st.just([{"name": "m", "emptyDir": {}}]),
        "imagePullSecrets": st.sampled_from([[{"name": "theirs"}], [{"name": "ours"}]]),
    },
)


@given(OPTIONAL, OF_THE_POD)
def test_what_was_written_is_taken_back_to_the_letter(engine: dict[str, Any], pod: dict[str, Any]):
    made = deployment(engine, pod)
    with_it, fields = delivered(made)
    found = delivery_in(with_it["spec"]["template"]["spec"])
    assert found == DELIVERY
    assert with_it["spec"]["template"]["spec"]["containers"][1]["args"] == WORDS.args
    assert concerns_plugin(fields)
    assert not only_switches(fields)
    assert not takes_plugin_out(fields)
    assert written(with_it, reversed_changes(fields)) == made
    seen = view(with_it)
    original = ContainerWords(command=engine.get("command"), args=["serve", "m"])
    out = removal_fields(seen, original, fields)
    assert takes_plugin_out(out)
    assert written(with_it, out) == made
    assert written(made, reversed_changes(out)) == with_it


@given(OPTIONAL, OF_THE_POD)
def test_what_others_have_added_since_stays_and_nothing_of_the_plugin_does(engine: dict[str, Any], pod: dict[str, Any]):
    made = deployment(engine, pod)
    with_it, fields = delivered(made)
    spec = with_it["spec"]["template"]["spec"]
    spec["initContainers"].insert(0, {"name": "theirs", "image": "t:1"})
    spec["containers"][1]["env"].append({"name": "THEIRS", "value": "1"})
    spec["containers"][1]["env"].insert(0, {"name": "FIRST", "value": "0"})
    after = written(with_it, removal_fields(view(with_it), BACK, fields))["spec"]["template"]["spec"]
    assert after["initContainers"] == [{"name": "theirs", "image": "t:1"}, *pod.get("initContainers", [])]
    env = after["containers"][1]["env"]
    assert (env[0]["name"], env[-1]["name"]) == ("FIRST", "THEIRS")
    assert not [v for v in env if v["name"].startswith("KNEEKEEPER") or PLUGIN_FOLDER in str(v.get("value"))]
    assert after["containers"][1]["args"] == BACK.args
    assert after.get("volumes") == pod.get("volumes")
    assert after["containers"][0] == made["spec"]["template"]["spec"]["containers"][0]


@given(OPTIONAL, OF_THE_POD)
def test_no_entry_of_the_users_is_in_what_a_status_keeps_but_those_that_change(
    engine: dict[str, Any], pod: dict[str, Any]
):
    _, fields = delivered(deployment(engine, pod))
    kept = "".join(text for change in fields for text in (change.before, change.after) if text)
    for name in ("HF_HOME", "POD", "fetch", "theirs", "/n"):
        assert name not in kept


def test_a_second_delivery_only_changes_what_differs():
    made = deployment({"env": [{"name": "PYTHONPATH", "value": "/app"}]}, {})
    with_it, _ = delivered(made)
    seen = view(with_it)
    higher = Delivery("vllm", "chat-limits", OTHER, OTHER)
    fields = delivery_fields(seen, seen.containers[1].env, BACK, higher, IMAGE)
    assert not isinstance(fields, NotWritable)
    assert sorted(change.path.rpartition("/containers/1")[2] for change in fields) == ["/args", "/env/2", "/env/3"]
    assert delivery_in(written(with_it, fields)["spec"]["template"]["spec"]) == higher


def test_a_config_map_that_an_earlier_delivery_left_is_set_before_the_pods_see_it():
    seen = view(deployment({}, {}), limits_as_text(OTHER))
    # It is read with the workload of a profile that allows live changes.
    fields = delivery_fields(seen, {}, WORDS, DELIVERY, IMAGE)
    assert not isinstance(fields, NotWritable)
    assert fields[0].path == "/data/limits"
    assert setting_in(json.loads(fields[0].after or ""), STARTED) == APPROVED


def test_the_workload_is_shown_as_without_the_plugin_with_what_is_in_force_as_its_words():
    with_it, _ = delivered(deployment({"env": [{"name": "VLLM_PLUGINS", "value": ""}]}, {}))
    for text, expected in [
        (None, APPROVED),
        ("nonsense", APPROVED),
        (limits_as_text(Setting(max_num_seqs=65, max_num_batched_tokens=64)), APPROVED),
        (limits_as_text(OTHER), OTHER),
    ]:
        seen = view(with_it, text)
        assert seen.live is not None
        assert seen.live.stands
        assert seen.containers[1].words.args is not None
        assert seen.containers[1].words.args[-2:] == [
            f"--max-num-seqs={expected.max_num_seqs}",
            f"--max-num-batched-tokens={expected.max_num_batched_tokens}",
        ]
        assert dict(seen.containers[1].env) == {"VLLM_PLUGINS": ""}
        assert PLUGIN_CONTAINER not in str(seen.pod_template)


@pytest.mark.parametrize("taken", ["initContainers", "volumes", "env", "volumeMounts"])
def test_a_plugin_of_which_a_part_is_missing_is_none(taken: str):
    with_it, _ = delivered(deployment({}, {}))
    spec = with_it["spec"]["template"]["spec"]
    holder = spec if taken in spec else spec["containers"][1]
    holder.pop(taken)
    assert delivery_in(spec) is None
    seen = view(with_it)
    assert seen.live is None
    assert seen.containers[1].words.args == WORDS.args


def test_a_switch_is_one_change_of_one_value_and_none_where_it_is_made():
    [change] = switch_fields("chat-limits", limits_as_text(APPROVED), OTHER)
    assert (change.kind, change.name, change.path) == ("ConfigMap", "chat-limits", "/data/limits")
    assert only_switches([change])
    assert switch_fields("chat-limits", limits_as_text(OTHER), OTHER) == ()


def test_a_pod_without_the_plugin_is_left_as_it_is():
    spec = deployment({"env": [{"name": "A", "value": "1"}]}, {})["spec"]["template"]["spec"]
    assert without_plugin(spec) == spec
