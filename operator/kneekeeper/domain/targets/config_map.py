"""The limits in the file behind `--config`, where a ConfigMap holds it: the file's text, and what restarts the pods.

A mounted ConfigMap changes in running pods without restarting their engines, so an annotation of the pod template
changes with it, which the workload's own strategy rolls out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace

import yaml

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import FieldChange
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.arguments.flags import LIMIT_FLAGS
from kneekeeper.domain.manifests import Change, EditRefusedError, ManifestObject, Path, edit_text, value_at
from kneekeeper.domain.names import ANNOTATION_CONFIG
from kneekeeper.domain.targets.containers import Container, containers_of, keys_of_container
from kneekeeper.domain.targets.fields import NotWritable, changes_of
from kneekeeper.domain.targets.model import Asked, Edit, Objects
from kneekeeper.domain.targets.ownership import RELEASE_TOOLS, owner_of

_CONFIG_MAP = "ConfigMap"


def config_map_changes(
    source: Objects, template: Path, asked: Asked, shared: Collection[str] = ()
) -> tuple[FieldChange, ...] | NotWritable:
    """The file's new text and the template's new annotation, in this order.

    The first object of `source` is the workload, `template` says where its pod template stands, `asked.part` names
    the container. `shared` are ConfigMaps that pods of others mount too: they are left alone.
    """
    target = source.items[0]
    pod_spec = value_at(target.value, (*template, "spec")) or {}
    found = zip(containers_of(pod_spec, target.namespace, source), pod_spec.get("containers") or [], strict=True)
    container, raw = next(((one, other) for one, other in found if one.name == asked.part), (None, {}))
    engine = container.engine() if container is not None else None
    if container is None or engine is None:
        return NotWritable("ContainerNotFound", f"There is no container {asked.part}. Name another.")
    if isinstance(engine, Refusal):
        return NotWritable(engine.reason, engine.message)
    path = engine.before.config_path
    if path is None:
        message = "The engine reads no config file. Start it with --config, or set spec.updatePolicy.method to Args."
        return NotWritable("NoConfigFile", message)
    if engine.before.max_num_seqs is not None or engine.before.max_num_batched_tokens is not None:
        message = f"The command line gives a limit too, and beats {path}. Take it off there, or use the method Args."
        return NotWritable("LimitsOnCommandLine", message)
    held = keys_of_container(raw, pod_spec, target.namespace, source)[path]  # else it would not have been read
    config_map = source.find(_CONFIG_MAP, held.config_map, target.namespace)
    assert config_map is not None  # a text of it was read
    problem = _not_writable(config_map, shared)
    if problem is not None:
        return problem
    text = _with_limits(held.text, asked.setting)
    if isinstance(text, NotWritable):
        return text
    if not _means(container, path, text, asked.setting):
        message = f"{held.key} of ConfigMap {config_map.name} names a limit in a way that is not known. Write it out."
        return NotWritable("NotUnderstood", message)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return changes_of(
        [
            Edit(config_map, ("data", held.key), text),
            Edit(target, (*template, "metadata", "annotations", ANNOTATION_CONFIG), digest),
        ]
    )


def _not_writable(config_map: ManifestObject, shared: Collection[str]) -> NotWritable | None:
    if config_map.value.get("immutable"):
        message = f"ConfigMap {config_map.name} is immutable. Mount one that is not, or use the method Args."
        return NotWritable("ImmutableConfigMap", message)
    owner = owner_of(config_map.metadata)
    if owner is not None and owner.kind not in RELEASE_TOOLS:
        message = f"{owner.kind} {owner.name} makes ConfigMap {config_map.name} and writes it back. Change it there."
        return NotWritable("OwnedByOther", message)
    if config_map.name in shared:
        message = (
            f"Pods of other workloads mount ConfigMap {config_map.name} too, and would get the limits at their next "
            "start. Give this engine a ConfigMap of its own, or use the method Args."
        )
        return NotWritable("SharedConfigMap", message)
    return None


def _with_limits(text: str, setting: Setting) -> str | NotWritable:
    """Both limits under the names that stand there; an absent one is added."""
    present = yaml.safe_load(text)  # it was read as a mapping
    numbers = dict(zip(LIMIT_FLAGS, (setting.max_num_seqs, setting.max_num_batched_tokens), strict=True))
    changes: list[Change] = []
    for flag, number in numbers.items():
        keys = [key for key in present if f"--{str(key).replace('_', '-')}" == flag]
        changes += [Change((key,), number) for key in keys or [flag.removeprefix("--")]]
    try:
        return edit_text(text, changes)
    except EditRefusedError as error:
        return NotWritable("NotUnderstood", str(error))


def _means(container: Container, path: str, text: str, setting: Setting) -> bool:
    """Whether the engine would run with the setting, read again with the new text."""
    read = replace(container, files={**container.files, path: text}).read()
    if isinstance(read, Refusal):
        return False
    return (read.max_num_seqs, read.max_num_batched_tokens) == (setting.max_num_seqs, setting.max_num_batched_tokens)
