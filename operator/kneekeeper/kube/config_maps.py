"""Reads of single keys of ConfigMaps that a profile names."""

from __future__ import annotations

from kneekeeper.api.model import LocalReference
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Forbidden, NotFound
from kneekeeper.kube.resources import CONFIG_MAPS


class ConfigMapUnusable(Exception):
    """A ConfigMap that a profile names cannot be used; the message says what to correct."""


async def read_config_map_key(kube: Kube, namespace: str, reference: LocalReference) -> str:
    """The key that the reference means: the one it names, else the ConfigMap's only one.

    Raises ConfigMapUnusable.
    """
    name = reference.name
    try:
        config_map = await kube.get(CONFIG_MAPS, namespace, name)
    except NotFound:
        raise ConfigMapUnusable(f"ConfigMap {name} does not exist; create it") from None
    except Forbidden:
        raise ConfigMapUnusable(f"ConfigMap {name} may not be read; let the operator get ConfigMaps here") from None
    keys = [*(config_map.get("data") or {}), *(config_map.get("binaryData") or {})]
    key = reference.key
    if key is None:
        if len(keys) != 1:
            raise ConfigMapUnusable(f"ConfigMap {name} has {len(keys)} keys; name one of them")
        key = keys[0]
    if key not in keys:
        raise ConfigMapUnusable(f"ConfigMap {name} has no key {key}; correct the name of the key")
    return key
