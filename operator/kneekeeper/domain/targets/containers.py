"""Containers of a pod template: what they run, and the edits that change it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.domain.arguments import (
    Completeness,
    Content,
    EngineArguments,
    Environment,
    Refusal,
    RefusalReason,
    Rewrite,
    VariableUse,
    WrittenLimits,
    entrypoint_of_image,
    read_engine_arguments,
    read_written_limits,
    rewrite,
)
from kneekeeper.domain.manifests import ManifestObject, Path
from kneekeeper.domain.targets.model import Edit, Engine, Objects

_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)", re.ASCII)
_FREE_FIELDS = ("metadata.annotations", "metadata.labels")  # any text, or none

NOTHING: Mapping[str, str | Content] = {}

_NO_ENGINE = (RefusalReason.NOT_VLLM, RefusalReason.ENTRYPOINT_UNKNOWN)


@dataclass(frozen=True)
class Container:
    """A container with everything that its command line depends on."""

    name: str
    image: str
    command: Sequence[str] | None
    args: Sequence[str] | None
    env: Environment
    files: Mapping[str, str]  # of ConfigMaps that are mounted and at hand, by path

    def read(self) -> EngineArguments | Refusal:
        return read_engine_arguments(
            self.command, self.args, self.env, entrypoint=entrypoint_of_image(self.image), files=self.files
        )

    def engine(self) -> Engine | Refusal:
        arguments = self.read()
        if isinstance(arguments, Refusal):
            return arguments
        limits = read_written_limits(
            self.command, self.args, self.env, entrypoint=entrypoint_of_image(self.image), files=self.files
        )
        assert isinstance(limits, WrittenLimits)  # read with the same words above
        return Engine(self.name, arguments, limits, self.image)

    def rewritten(self, setting: Setting, variables: VariableUse) -> Rewrite | Refusal:
        return rewrite(
            self.command,
            self.args,
            self.env,
            max_num_seqs=setting.max_num_seqs,
            max_num_batched_tokens=setting.max_num_batched_tokens,
            entrypoint=entrypoint_of_image(self.image),
            files=self.files,
            variables=variables,
        )


@dataclass(frozen=True)
class MountedKey:
    """A key of a ConfigMap that is a file of a container."""

    config_map: str
    key: str
    text: str


def is_no_engine(reading: Engine | EngineArguments | Refusal) -> bool:
    """Whether a container is certainly, or as far as its words tell, something else than vLLM."""
    return isinstance(reading, Refusal) and reading.reason in _NO_ENGINE


def config_maps_of(pod_spec: Mapping[str, Any]) -> frozenset[str]:
    """Names of the ConfigMaps that some container's command line depends on."""
    names: set[str] = set()
    for container in pod_spec.get("containers") or []:
        words = " ".join(str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ())))
        if "$" in words:
            sources = [source.get("configMapRef") for source in container.get("envFrom") or []]
            values = [(variable.get("valueFrom") or {}) for variable in container.get("env") or []]
            sources += [value.get("configMapKeyRef") for value in values]
            names |= {str(source["name"]) for source in sources if source and source.get("name")}
        if "--config" in words:
            volumes = [volume.get("configMap") for volume in pod_spec.get("volumes") or []]
            names |= {str(volume["name"]) for volume in volumes if volume and volume.get("name")}
    return frozenset(names)


def containers_of(
    pod_spec: Mapping[str, Any], namespace: str, objects: Objects, added: Mapping[str, str | Content] = NOTHING
) -> tuple[Container, ...]:
    """The pod's main containers; init containers and native sidecars serve no model.

    `added` are variables that the pods' controller sets.
    """
    return tuple(
        Container(
            str(container.get("name", "")),
            str(container.get("image") or ""),
            container.get("command") or None,
            container.get("args") or None,
            environment_of_container(container, namespace, objects, added),
            files_of_container(container, pod_spec, namespace, objects),
        )
        for container in pod_spec.get("containers") or []
    )


def environment_of_container(
    container: Mapping[str, Any], namespace: str, objects: Objects, added: Mapping[str, str | Content] = NOTHING
) -> Environment:
    """Literal values and those of ConfigMaps at hand; of Secrets only that they are set."""
    values = {name: value for name, value in added.items() if not isinstance(value, Content)}
    unknown = {name: value for name, value in added.items() if isinstance(value, Content)}
    complete = True
    for source in container.get("envFrom") or []:
        reference = source.get("configMapRef") or {}
        texts = objects.texts_of_config_map(str(reference.get("name", "")), namespace)
        complete = complete and texts is not None
        values |= {str(source.get("prefix") or "") + key: text for key, text in (texts or {}).items()}
    for variable in container.get("env") or []:
        name = str(variable["name"])
        value = _value(variable, namespace, objects, {**unknown, **values})
        values.pop(name, None)
        unknown.pop(name, None)
        if isinstance(value, Content):
            unknown[name] = value
        else:
            values[name] = value
    fixed = frozenset(str(variable["name"]) for variable in container.get("env") or [] if variable.get("valueFrom"))
    return Environment(values, unknown, Completeness.COMPLETE if complete else Completeness.PARTIAL, fixed)


def _value(
    variable: Mapping[str, Any], namespace: str, objects: Objects, above: Mapping[str, str | Content]
) -> str | Content:
    source = variable.get("valueFrom")
    if not source:
        text = str(variable.get("value") or "")
        # The kubelet expands it with variables that stand above. Where it is more than one of them, it is not followed:
        # what is changed in the expanded text could not be written back.
        whole = _REFERENCE.fullmatch(text)
        if whole is not None:
            return above.get(whole.group(1), Content.ANYTHING)
        return Content.ANYTHING if "$(" in text else text
    if "fieldRef" in source or "resourceFieldRef" in source:
        field = str((source.get("fieldRef") or {}).get("fieldPath", ""))
        return Content.ANYTHING if field.startswith(_FREE_FIELDS) else Content.ONE_WORD
    reference = source.get("configMapKeyRef") or {}
    texts = objects.texts_of_config_map(str(reference.get("name", "")), namespace) or {}
    return texts.get(str(reference.get("key", "")), Content.ANYTHING)


def files_of_container(
    container: Mapping[str, Any], pod_spec: Mapping[str, Any], namespace: str, objects: Objects
) -> Mapping[str, str]:
    """Texts of ConfigMaps at hand that are mounted into the container, by path."""
    return {path: held.text for path, held in keys_of_container(container, pod_spec, namespace, objects).items()}


def keys_of_container(
    container: Mapping[str, Any], pod_spec: Mapping[str, Any], namespace: str, objects: Objects
) -> Mapping[str, MountedKey]:
    """The same with where each text stands."""
    volumes = {volume.get("name"): volume.get("configMap") for volume in pod_spec.get("volumes") or []}
    files: dict[str, MountedKey] = {}
    for mount in container.get("volumeMounts") or []:
        source = volumes.get(mount.get("name"))
        name = str(source.get("name", "")) if source else ""
        texts = objects.texts_of_config_map(name, namespace) if source else None
        if source is None or texts is None:
            continue
        paths = {item["key"]: item["path"] for item in source.get("items") or []}
        named = {
            paths.get(key, key): MountedKey(name, key, text) for key, text in texts.items() if not paths or key in paths
        }
        place, part = str(mount.get("mountPath", "")).rstrip("/"), mount.get("subPath")
        if part:
            files |= {place: named[part]} if part in named else {}
        else:
            files |= {f"{place}/{path}": held for path, held in named.items()}
    return files


def edits_of_container(subject: ManifestObject, container: Mapping[str, Any], at: Path, result: Rewrite) -> list[Edit]:
    """The edits that make `container`, which stands at `at`, hold the rewritten words and variables."""
    edits = [
        *_edits_of_list(subject, (*at, "command"), container.get("command"), result.command),
        *_edits_of_list(subject, (*at, "args"), container.get("args"), result.args),
    ]
    present = container.get("env") or []
    added = [{"name": name, "value": text} for name, text in result.env.items()]
    for entry in added:  # at each of its places: the kubelet takes the last one, but others the first
        places = [index for index, old in enumerate(present) if old.get("name") == entry["name"]]
        edits += [Edit(subject, (*at, "env", index), entry) for index in places]
    missing = [entry for entry in added if entry["name"] not in {old.get("name") for old in present}]
    if missing and present:
        edits += [Edit(subject, (*at, "env", len(present) + i), entry) for i, entry in enumerate(missing)]
    elif missing:
        edits.append(Edit(subject, (*at, "env"), missing))
    return edits


def _edits_of_list(
    subject: ManifestObject, path: Path, old: Sequence[str] | None, new: Sequence[str] | None
) -> list[Edit]:
    """The whole list, or the item that holds a script."""
    if not old or new is None or list(old) == list(new):
        return []
    changed = [index for index, (one, other) in enumerate(zip(old, new, strict=False)) if one != other]
    if len(old) == len(new) and all(" " in old[index] for index in changed):
        return [Edit(subject, (*path, index), new[index]) for index in changed]
    return [Edit(subject, path, list(new))]
