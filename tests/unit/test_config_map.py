"""The limits in a config file that a ConfigMap holds: its text changes minimally, and the pods are restarted for it."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import FieldChange
from kneekeeper.domain.arguments import RefusalReason
from kneekeeper.domain.manifests import ManifestObject
from kneekeeper.domain.names import LABEL_ROLE
from kneekeeper.domain.targets import Asked, Objects
from kneekeeper.domain.targets.config_map import config_map_changes
from kneekeeper.domain.targets.fields import NotWritable, json_patch, reversed_changes
from kneekeeper.kube.client import Kube
from kneekeeper.kube.labels import parse_selector
from kneekeeper.observe.target import ReadWorkload, config_maps_used_by, read_shared_config_maps
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import deployment, template
from tests.unit.test_target_fields import patched

SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)
PLACE = ("spec", "template")
TEXT = """\
# Kept by hand.
model: example/chat-8b
max_num_seqs: 256   # too many
max-model-len: 8192
"""


def source(text: str = TEXT, args: list[str] | None = None, **config_map: Any) -> Objects:
    """A Deployment whose engine reads config.yaml of ConfigMap engine."""
    made = template(volumes=[{"name": "config", "configMap": {"name": "engine"}}, {"name": "models", "emptyDir": {}}])
    made["spec"]["containers"][1] |= {
        "args": ["--config", "/etc/vllm/config.yaml", *(args or [])],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/vllm/"}],
    }
    held = {"metadata": {"name": "engine", "namespace": "prod"}, "data": {"config.yaml": text}}
    values = (deployment(made), {"apiVersion": "v1", "kind": "ConfigMap", **held, **config_map})
    return Objects(tuple(ManifestObject(0, (), value) for value in values))


def changes_in(objects: Objects) -> tuple[FieldChange, FieldChange]:
    found = config_map_changes(objects, PLACE, Asked(SETTING, "vllm"))
    assert isinstance(found, tuple), found
    file, restart = found
    return file, restart


def reason_of(objects: Objects, shared: tuple[str, ...] = ()) -> str:
    found = config_map_changes(objects, PLACE, Asked(SETTING, "vllm"), shared)
    assert isinstance(found, NotWritable)
    assert found.message.endswith(".")
    return found.reason


def test_the_number_changes_the_missing_limit_is_added_and_all_else_stays():
    file, _ = changes_in(source())
    assert (file.kind, file.name, file.path) == ("ConfigMap", "engine", "/data/config.yaml")
    assert json.loads(file.after or "") == (
        "# Kept by hand.\nmodel: example/chat-8b\nmax_num_seqs: 64   # too many\nmax-model-len: 8192\n"
        "max-num-batched-tokens: 4096\n"
    )


def test_an_annotation_of_the_template_restarts_the_pods_for_every_other_text():
    _, restart = changes_in(source())
    assert (restart.kind, restart.name) == ("Deployment", "chat")
    assert restart.path == "/spec/template/metadata/annotations/kneekeeper.io~1config"
    assert restart.before is None
    assert restart.after != changes_in(source(TEXT + "seed: 1\n"))[1].after


def test_both_changes_are_taken_back_exactly():
    objects = source()
    for change, item in zip(changes_in(objects), (objects.items[1], objects.items[0]), strict=True):
        after = patched(item.value, json_patch(item.value, [change]))
        assert patched(after, json_patch(after, reversed_changes([change]))) == item.value


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        (source(args=["--max-num-seqs=8"]), "LimitsOnCommandLine"),
        (source(immutable=True), "ImmutableConfigMap"),
        (source("model: [broken"), RefusalReason.CONFIG_FILE),
    ],
)
def test_what_cannot_be_written_is_refused_by_its_reason(objects: Objects, reason: str):
    assert reason_of(objects) == reason


def test_an_engine_without_a_config_file_has_no_such_place():
    assert reason_of(Objects((ManifestObject(0, (), deployment()),))) == "NoConfigFile"


def test_a_file_that_pods_of_others_mount_is_left_alone():
    assert reason_of(source(), ("engine",)) == "SharedConfigMap"
    assert isinstance(config_map_changes(source(), PLACE, Asked(SETTING, "vllm"), ("other",)), tuple)


def test_a_config_map_that_a_controller_makes_is_left_alone_and_that_of_a_release_is_written():
    made = {"name": "engine", "namespace": "prod"}
    owner = {"apiVersion": "example.com/v1", "kind": "Server", "name": "chat", "controller": True}
    assert reason_of(source(metadata={**made, "ownerReferences": [owner]})) == "OwnedByOther"
    released = source(metadata={**made, "annotations": {"meta.helm.sh/release-name": "chat"}})
    assert isinstance(config_map_changes(released, PLACE, Asked(SETTING, "vllm")), tuple)


_SETTINGS = st.fixed_dictionaries(
    {"model": st.just("m")},
    optional={
        "max-num-seqs": st.integers(1, 1024),
        "max_num_batched_tokens": st.sampled_from([2048, "8k", "4096"]),
        "dtype": st.sampled_from(["auto", "half"]),
        "enforce-eager": st.booleans(),
    },
)


@given(settings=_SETTINGS, flow=st.booleans())
def test_whatever_the_file_only_the_limits_change_and_a_second_write_changes_nothing(settings, flow):
    text = yaml.safe_dump(settings, default_flow_style=flow)
    file, _ = changes_in(source(text))
    after = yaml.safe_load(json.loads(file.after or ""))
    names = ("max-num-seqs", "max_num_seqs", "max-num-batched-tokens", "max_num_batched_tokens")
    assert {k: v for k, v in after.items() if k not in names} == {k: v for k, v in settings.items() if k not in names}
    assert [after[name] for name in names if name in after] == [64, 4096]
    again, _ = changes_in(source(json.loads(file.after or "")))
    assert again.after == again.before


def test_every_way_to_use_a_config_map_is_found():
    pod_spec = {
        "volumes": [
            {"name": "a", "configMap": {"name": "volume"}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "projected"}}, {"secret": {"name": "no"}}]}},
            {"name": "c", "emptyDir": {}},
        ],
        "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "all"}}]}],
        "containers": [{"name": "m", "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "one"}}}]}],
    }
    assert config_maps_used_by(pod_spec) == {"volume", "projected", "all", "one"}


class Pods:
    """Answers a list of pods."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods

    async def list(self, *_: object) -> list[dict[str, Any]]:
        return list(self.pods)


async def test_only_pods_of_others_make_a_config_map_shared():
    workload = dict(source().items[0].value)
    read = ReadWorkload(parse_workload(workload), parse_selector(workload["spec"]["selector"]))
    mounts = {"volumes": [{"name": "a", "configMap": {"name": "engine"}}], "containers": []}
    own = {"metadata": {"labels": {"app": "chat"}}, "spec": mounts}
    clone = {"metadata": {"labels": {LABEL_ROLE: "clone"}}, "spec": mounts}
    other = {"metadata": {"labels": {"app": "web"}}, "spec": mounts}
    assert await read_shared_config_maps(cast(Kube, Pods(own, clone)), read) == ()
    assert await read_shared_config_maps(cast(Kube, Pods(own, other)), read) == ("engine",)
