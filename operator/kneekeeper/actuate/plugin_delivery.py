"""The live-tuning plugin in a clone: an init container of the operator's image writes it into a shared volume.

The user's image is not changed. The engine finds the plugin through PYTHONPATH, and VLLM_PLUGINS where that is set;
the channel's token is the one of the run's Secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kneekeeper.actuate.agent import USER_ID
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.domain.live_environment import (
    ALLOWED_PLUGINS,
    PLUGIN_FOLDER,
    PYTHON_PATH,
    plugins_with_plugin,
    python_path_with_plugin,
)
from kneekeeper.domain.names import TOKEN_KEY, agent_name
from kneekeeper.kube.resources import Resource
from kneekeeper.livetune.plugin import TOKEN

PLUGIN_CONTAINER = "kneekeeper-livetune"
PLUGIN_VOLUME = "kneekeeper-livetune"

_RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
_VOLUME_SIZE = "8Mi"


def deliver_plugin(pod_spec: Resource, env: Mapping[str, str], run: str, settings: ActuateSettings) -> None:
    """Add it to a clone's pod spec, whose only container is the engine.

    `env` is what the engine's container has set, as far as it is known: PYTHONPATH and VLLM_PLUGINS must not be
    unknown in it, since they would be replaced.
    """
    [engine] = pod_spec["containers"]
    pod_spec["initContainers"] = [*pod_spec["initContainers"], _init_container(settings)]
    pod_spec["volumes"] = [
        *(pod_spec.get("volumes") or []),
        {"name": PLUGIN_VOLUME, "emptyDir": {"sizeLimit": _VOLUME_SIZE}},
    ]
    if settings.agent_image_pull_secrets:
        names = [{"name": name} for name in settings.agent_image_pull_secrets]
        pod_spec["imagePullSecrets"] = [*(pod_spec.get("imagePullSecrets") or []), *names]
    mount = {"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER, "readOnly": True}
    engine["volumeMounts"] = [*(engine.get("volumeMounts") or []), mount]
    variables = [variable for variable in engine.get("env") or [] if variable["name"] != TOKEN]
    _extend(variables, env, PYTHON_PATH, python_path_with_plugin)
    if ALLOWED_PLUGINS in env:
        _extend(variables, env, ALLOWED_PLUGINS, plugins_with_plugin)
    secret = {"name": agent_name(run), "key": TOKEN_KEY}
    engine["env"] = [*variables, {"name": TOKEN, "valueFrom": {"secretKeyRef": secret}}]


def _extend(variables: list[Resource], env: Mapping[str, str], name: str, extended: Callable[[str], str]) -> None:
    """Where it stands among the variables, as it is written there: the kubelet expands references to others."""
    for index, variable in reversed(list(enumerate(variables))):
        if variable["name"] == name:
            variables[index] = {"name": name, "value": extended(variable.get("value") or "")}
            return
    variables.append({"name": name, "value": extended(env.get(name, ""))})


def _init_container(settings: ActuateSettings) -> Resource:
    return {
        "name": PLUGIN_CONTAINER,
        "image": settings.agent_image,
        "imagePullPolicy": settings.agent_image_pull_policy,
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
        "volumeMounts": [{"name": PLUGIN_VOLUME, "mountPath": PLUGIN_FOLDER}],
    }
