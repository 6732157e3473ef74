"""The live-tuning plugin in a clone; the token of its channel is the one of the run's Secret."""

from __future__ import annotations

from collections.abc import Mapping

from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.domain.live_delivery import with_plugin
from kneekeeper.domain.names import TOKEN_KEY, agent_name
from kneekeeper.kube.resources import Resource
from kneekeeper.livetune.environment import TOKEN


def with_clones_plugin(pod_spec: Resource, env: Mapping[str, str], run: str, settings: ActuateSettings) -> Resource:
    """The clone's pod spec, whose only container is the engine, with the plugin."""
    [engine] = pod_spec["containers"]
    secret = {"name": agent_name(run), "key": TOKEN_KEY}
    token = {"name": TOKEN, "valueFrom": {"secretKeyRef": secret}}
    return with_plugin(pod_spec, engine["name"], env, settings.plugin_image, [token])
