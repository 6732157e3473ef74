"""Which cluster and which namespace a person means, as kubectl takes it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.config import ConfigException, kube_config

from kneekeeper import __version__
from kneekeeper.kube.client import Kube, in_a_pod

_kube_config: Any = kube_config  # the library's own annotations are incomplete

DEFAULT_NAMESPACE = "default"
_USUAL_FILE = "~/.kube/config"
_NAMESPACE_OF_THE_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class NoClusterError(Exception):
    """No API server is known, or not how to speak to it. The message has the next step."""


@dataclass(frozen=True)
class ClusterChoice:
    """What was asked for; None is what kubectl would take."""

    kubeconfig: str | None = None
    context: str | None = None

    @property
    def files(self) -> str | None:
        """Paths of kubeconfigs, joined as in $KUBECONFIG; None where a pod's own ServiceAccount is meant."""
        asked = self.kubeconfig or os.environ.get("KUBECONFIG")
        return asked or (None if self.context is None and in_a_pod() else _USUAL_FILE)


async def connect(choice: ClusterChoice) -> Kube:
    """A client of that cluster. Raises NoClusterError."""
    try:
        return await Kube.connect(__version__, choice.files, context=choice.context)
    except (ConfigException, OSError, yaml.YAMLError) as error:
        raise _unknown(choice, str(error)) from error


def default_namespace(choice: ClusterChoice) -> str:
    """The namespace of the context, in a pod that of its ServiceAccount, else `default`. Raises NoClusterError."""
    files = choice.files
    if files is None:
        return _NAMESPACE_OF_THE_POD.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    try:
        merged = _kube_config.KubeConfigMerger(files).config
    except (OSError, yaml.YAMLError) as error:
        raise _unknown(choice, str(error)) from error
    if merged is None:
        raise _unknown(choice, "the file does not exist")
    contexts = {str(each["name"]): each for each in merged.value["contexts"]}
    name = choice.context or merged.value.get("current-context") or ""
    if name not in contexts:
        raise _unknown(choice, f"there is no context {name!r}; there are: {', '.join(sorted(contexts)) or 'none'}")
    return (contexts[name].safe_get("context") or {}).get("namespace") or DEFAULT_NAMESPACE


def _unknown(choice: ClusterChoice, why: str) -> NoClusterError:
    where = choice.files or "this pod's ServiceAccount"
    return NoClusterError(
        f"no cluster is known by {where}: {why}. Set KUBECONFIG, or give --kubeconfig FILE and --context NAME."
    )
