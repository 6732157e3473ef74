"""The plugin reaches the clone's engine beside all that the user has set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kneekeeper.actuate.clone import build_clone
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.api.probe import LiveTuning
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.domain.actions import EnsureClone
from kneekeeper.domain.live_delivery import PLUGIN_CONTAINER, PLUGIN_VOLUME
from kneekeeper.domain.live_environment import PLUGIN_FOLDER, plugins_with_plugin, unknown_variables
from kneekeeper.livetune import environment
from kneekeeper.observe.workloads import parse_workload
from tests.unit.kube_objects import deployment, template, tuning_run

IMAGE = "registry.example.com/kneekeeper:1"
SETTINGS = ActuateSettings(IMAGE, "kneekeeper-clone", agent_image_pull_secrets=("ours",))
WORDS = ContainerWords(command=["vllm", "serve"], args=["example/chat-8b"])
ACTION = EnsureClone(start=2, container="vllm", words=WORDS, deadline_s=3600, live_tuning=LiveTuning.ALLOWED)


def pod_of(action: EnsureClone = ACTION, **engine: Any) -> dict[str, Any]:
    made = template()
    made["spec"]["containers"][1].update(engine)
    spec: dict[str, Any] = build_clone(parse_workload(deployment(made)), tuning_run(), action, SETTINGS)["spec"]
    return spec


def engine_of(pod: dict[str, Any]) -> dict[str, Any]:
    [engine] = pod["containers"]
    found: dict[str, Any] = engine
    return found


def env_of(pod: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in engine_of(pod)["env"]}


def without(delivered: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [each for each in delivered if each["name"] != name]


def test_a_last_init_container_of_the_operators_image_writes_it_into_a_volume_that_the_engine_reads():
    pod = pod_of()
    init = pod["initContainers"][-1]
    assert (init["name"], init["image"]) == (PLUGIN_CONTAINER, IMAGE)
    assert init["args"] == ["kneekeeper.livetune.deliver", PLUGIN_FOLDER]
    assert init["volumeMounts"] == [{"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER}]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == PLUGIN_VOLUME]
    assert set(volume) == {"name", "emptyDir"}
    mount = {"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER, "readOnly": True}
    assert mount in engine_of(pod)["volumeMounts"]


def test_the_init_container_is_as_restricted_as_the_strictest_pod_security_asks():
    context = pod_of()["initContainers"][-1]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_token_is_the_runs_and_stands_in_no_manifest():
    [token] = [variable for variable in engine_of(pod_of())["env"] if variable["name"] == environment.TOKEN]
    assert token["valueFrom"] == {"secretKeyRef": {"name": "chat-1-agent", "key": "token"}}


def test_all_else_of_the_clone_is_as_without_it():
    pod, bare = pod_of(), pod_of(replace(ACTION, live_tuning=LiveTuning.DISABLED))
    pod["initContainers"] = without(pod["initContainers"], PLUGIN_CONTAINER)
    pod["volumes"] = without(pod["volumes"], PLUGIN_VOLUME)
    pod["imagePullSecrets"] = without(pod["imagePullSecrets"], "ours")
    engine, bare_engine = engine_of(pod), engine_of(bare)
    engine["volumeMounts"] = without(engine["volumeMounts"], PLUGIN_VOLUME)
    engine["env"] = [v for v in engine["env"] if v["name"] not in (environment.TOKEN, "PYTHONPATH")]
    for part in (pod, bare):
        part.setdefault("volumes", [])
        part.setdefault("imagePullSecrets", [])
    for part in (engine, bare_engine):
        part.setdefault("volumeMounts", [])
        part.setdefault("env", [])
    assert pod == bare


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ([], PLUGIN_FOLDER),
        ([{"name": "PYTHONPATH", "value": "/app"}], f"/app:{PLUGIN_FOLDER}"),
        ([{"name": "PYTHONPATH", "value": "/app:"}], f"/app:{PLUGIN_FOLDER}"),
        ([{"name": "PYTHONPATH", "value": ""}], PLUGIN_FOLDER),
        ([{"name": "PYTHONPATH"}], PLUGIN_FOLDER),
        ([{"name": "A", "value": "/a"}, {"name": "PYTHONPATH", "value": "$(A)/b"}], f"$(A)/b:{PLUGIN_FOLDER}"),
    ],
)
def test_the_users_python_path_goes_first(env: list[dict[str, Any]], path: str):
    pod = pod_of(env=env)
    assert env_of(pod)["PYTHONPATH"] == path
    assert [v["name"] for v in engine_of(pod)["env"]].count("PYTHONPATH") == 1


@pytest.mark.parametrize(
    ("value", "extended"),
    [
        ("one,two", "one,two,kneekeeper_livetune"),
        ("", "kneekeeper_livetune"),
        ("kneekeeper_livetune", "kneekeeper_livetune"),
    ],
)
def test_a_list_of_plugins_is_added_to(value: str, extended: str):
    assert env_of(pod_of(env=[{"name": "VLLM_PLUGINS", "value": value}]))["VLLM_PLUGINS"] == extended
    assert plugins_with_plugin(value) == extended


def test_without_a_list_every_plugin_is_loaded_and_none_is_made():
    assert "VLLM_PLUGINS" not in env_of(pod_of())


def test_a_value_that_is_not_read_is_known_to_be_unknown():
    secret = {"secretKeyRef": {"name": "paths", "key": "path"}}
    made = template()
    made["spec"]["containers"][1]["env"] = [{"name": "PYTHONPATH", "valueFrom": secret}]
    container = next(c for c in parse_workload(deployment(made)).containers if c.name == "vllm")
    assert unknown_variables(container.env) == ("PYTHONPATH",)
    assert unknown_variables({}) == ()
