"""The live-tuning plugin in a pod: how it is put there, known again and taken out. Pure, on pod specs.

An init container of the operator's image writes it into a shared volume. The user's image is not changed. The engine
finds the plugin through PYTHONPATH, and VLLM_PLUGINS where that is set. A clone's plugin is changed through a channel
with the run's token; production's reads a file that a ConfigMap of the profile becomes.

Values are written as the API server stores them, defaults included, so that what was written is known again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.domain.live_environment import (
    ALLOWED_PLUGINS,
    PLUGIN_FOLDER,
    PYTHON_PATH,
    plugins_with_plugin,
    plugins_without_plugin,
    python_path_with_plugin,
    python_path_without_plugin,
)
from kneekeeper.domain.live_settings import setting_read
from kneekeeper.domain.names import USER_ID
from kneekeeper.livetune.environment import APPROVED, FILE, STARTED, TOKEN, limits_in, limits_text

PLUGIN_CONTAINER = "kneekeeper-livetune"
PLUGIN_VOLUME = "kneekeeper-livetune"
LIMITS_VOLUME = "kneekeeper-limits"
LIMITS_FOLDER = "/var/run/kneekeeper/limits"
LIMITS_KEY = "limits"
"""Of the ConfigMap; the file's name too. No subPath mounts it, since those are never brought up to date."""

_RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
_VOLUME_SIZE = "8Mi"
_READABLE = 0o644

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class PluginImage:
    """The operator's own image, which holds the plugin."""

    name: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Delivery:
    """Production's plugin in a pod: the pair that the engine is started with, the setting that holds until the
    ConfigMap says another."""

    container: str
    config_map: str
    started: Setting
    approved: Setting


def with_plugin(
    spec: Spec, container: str, env: Mapping[str, str], image: PluginImage, variables: Sequence[Spec]
) -> dict[str, Any]:
    """The pod spec with the plugin in its engine's container, and these variables beside.

    `env` is what the engine's container has set, as far as it is known: PYTHONPATH and VLLM_PLUGINS must not be
    unknown in it, since they would be replaced.
    """
    made = deepcopy(dict(spec))
    made["initContainers"] = _with(made.get("initContainers"), _init_container(image))
    made["volumes"] = _with(made.get("volumes"), {"name": PLUGIN_VOLUME, "emptyDir": {"sizeLimit": _VOLUME_SIZE}})
    for secret in image.pull_secrets:
        made["imagePullSecrets"] = _with(made.get("imagePullSecrets"), {"name": secret})
    engine = _container(made, container)
    mount = {"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER, "readOnly": True}
    engine["volumeMounts"] = _with(engine.get("volumeMounts"), mount)
    set_here: list[dict[str, Any]] = list(engine.get("env") or [])
    _extend(set_here, env, PYTHON_PATH, python_path_with_plugin)
    if ALLOWED_PLUGINS in env:
        _extend(set_here, env, ALLOWED_PLUGINS, plugins_with_plugin)
    for variable in variables:
        set_here = _with(set_here, variable)
    engine["env"] = set_here
    return made


def with_production_plugin(
    spec: Spec, env: Mapping[str, str], image: PluginImage, delivery: Delivery
) -> dict[str, Any]:
    """The pod spec with the plugin that follows the ConfigMap."""
    started, approved = delivery.started, delivery.approved
    variables = [
        {"name": FILE, "value": f"{LIMITS_FOLDER}/{LIMITS_KEY}"},
        {"name": STARTED, "value": limits_text(started.max_num_seqs, started.max_num_batched_tokens)},
        {"name": APPROVED, "value": limits_text(approved.max_num_seqs, approved.max_num_batched_tokens)},
    ]
    made = with_plugin(spec, delivery.container, env, image, variables)
    source = {"name": delivery.config_map, "optional": True, "defaultMode": _READABLE}
    made["volumes"] = _with(made["volumes"], {"name": LIMITS_VOLUME, "configMap": source})
    engine = _container(made, delivery.container)
    mount = {"name": LIMITS_VOLUME, "mountPath": LIMITS_FOLDER, "readOnly": True}
    engine["volumeMounts"] = _with(engine["volumeMounts"], mount)
    return made


def without_plugin(spec: Spec) -> dict[str, Any]:
    """The pod spec with nothing of production's plugin. Secrets for pulling its image stay: others may use them."""
    made = deepcopy(dict(spec))
    _drop(made, "initContainers", (PLUGIN_CONTAINER,))
    _drop(made, "volumes", (PLUGIN_VOLUME, LIMITS_VOLUME))
    for container in made["containers"]:
        _drop(container, "volumeMounts", (PLUGIN_VOLUME, LIMITS_VOLUME))
        variables = [dict(variable) for variable in container.get("env") or []]
        for variable in variables:
            if variable["name"] == PYTHON_PATH and "value" in variable:
                variable["value"] = python_path_without_plugin(variable["value"])
            elif variable["name"] == ALLOWED_PLUGINS and "value" in variable:
                variable["value"] = plugins_without_plugin(variable["value"])
        container["env"] = [v for v in variables if not (v["name"] == PYTHON_PATH and v.get("value") == "")]
        _drop(container, "env", (TOKEN, FILE, STARTED, APPROVED))
    return made


def delivery_in(spec: Spec) -> Delivery | None:
    """Production's plugin, where all that it needs is in the pod spec."""
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or []}
    config_map = (volumes.get(LIMITS_VOLUME, {}).get("configMap") or {}).get("name")
    inits = [init["name"] for init in spec.get("initContainers") or []]
    if config_map is None or PLUGIN_VOLUME not in volumes or PLUGIN_CONTAINER not in inits:
        return None
    for container in spec["containers"]:
        mounts = {mount["name"] for mount in container.get("volumeMounts") or []}
        env = {variable["name"]: str(variable.get("value") or "") for variable in container.get("env") or []}
        started, approved = _setting(env, STARTED), _setting(env, APPROVED)
        found = PLUGIN_FOLDER in env.get(PYTHON_PATH, "") and {PLUGIN_VOLUME, LIMITS_VOLUME} <= mounts
        if found and FILE in env and started is not None and approved is not None:
            return Delivery(container["name"], config_map, started, approved)
    return None


def _setting(env: Mapping[str, str], name: str) -> Setting | None:
    try:
        limits = limits_in(env, name)
    except ValueError:
        return None
    return setting_read(limits) if limits is not None else None


def _container(spec: Spec, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(container for container in spec["containers"] if container["name"] == name)
    return found


def _with(items: Sequence[Spec] | None, item: Spec) -> list[dict[str, Any]]:
    """With this item, in the place of one with its name, else as the last."""
    known = [dict(each) for each in items or []]
    names = [each["name"] for each in known]
    if item["name"] in names:
        known[names.index(item["name"])] = dict(item)
        return known
    return [*known, dict(item)]


def _drop(holder: dict[str, Any], field: str, names: Sequence[str]) -> None:
    """Without the items of these names; an empty list is stored as none."""
    left = [each for each in holder.get(field) or [] if each["name"] not in names]
    holder.pop(field, None)
    if left:
        holder[field] = left


def _extend(variables: list[dict[str, Any]], env: Mapping[str, str], name: str, extended: Callable[[str], str]) -> None:
    """Where it stands among the variables, as it is written there: the kubelet expands references to others."""
    for index, variable in reversed(list(enumerate(variables))):
        if variable["name"] == name:
            variables[index] = {"name": name, "value": extended(variable.get("value") or "")}
            return
    variables.append({"name": name, "value": extended(env.get(name, ""))})


def _init_container(image: PluginImage) -> dict[str, Any]:
    return {
        "name": PLUGIN_CONTAINER,
        "image": image.name,
        "imagePullPolicy": image.pull_policy,
        "args": ["kneekeeper.livetune.deliver", PLUGIN_FOLDER],
        "resources": _RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [{"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER}],
    }
