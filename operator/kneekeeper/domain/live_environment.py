"""How the live-tuning plugin is added to an engine's environment, and when it cannot be."""

from __future__ import annotations

from collections.abc import Mapping

from kneekeeper.domain.arguments.environment import environment_of
from kneekeeper.livetune.deliver import PACKAGE

PLUGIN_FOLDER = "/var/run/kneekeeper/livetune"
"""Where the delivered plugin lies in the engine's container."""

PYTHON_PATH = "PYTHONPATH"
ALLOWED_PLUGINS = "VLLM_PLUGINS"


def unknown_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """Those of the two whose values come from a source that was not read: adding to them would replace them."""
    environment = environment_of(env)
    return tuple(name for name in (PYTHON_PATH, ALLOWED_PLUGINS) if environment.may_be_set(name))


def python_path_with_plugin(value: str) -> str:
    """The user's folders go first, so that nothing of theirs is hidden."""
    if PLUGIN_FOLDER in value.split(":"):
        return value
    return f"{value.rstrip(':')}:{PLUGIN_FOLDER}" if value else PLUGIN_FOLDER


def python_path_without_plugin(value: str) -> str:
    """What remains of the user's; empty where there was nothing else."""
    return ":".join(folder for folder in value.split(":") if folder != PLUGIN_FOLDER)


def plugins_with_plugin(value: str) -> str:
    """An allow-list of vLLM's plugins with this one; an empty list allows none, so that it is a list too."""
    names = [name for name in value.split(",") if name]
    return ",".join(names if PACKAGE in names else [*names, PACKAGE])


def plugins_without_plugin(value: str) -> str:
    """The list without this one; an empty list allows none."""
    return ",".join(name for name in value.split(",") if name and name != PACKAGE)
