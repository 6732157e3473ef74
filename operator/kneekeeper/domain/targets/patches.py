"""A setting as ready-made changes: a kubectl command, a kustomize patch, and values of a chart that is known."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords, FieldChange
from kneekeeper.domain.observation import ContainerView, WorkloadView
from kneekeeper.domain.targets.fields import NotWritable, changes_of, pointer
from kneekeeper.domain.targets.model import Asked
from kneekeeper.domain.targets.ownership import owner_of
from kneekeeper.domain.targets.planning import adapter_of

MAX_PATCH_CHARACTERS = 16_384
"""As many as a profile's status holds of each form."""

_STACK_CHART = "vllm-stack"
_LINE_CHARACTERS = 1_000_000  # no value is folded


@dataclass(frozen=True)
class Patches:
    """The same change in three forms. A form that is not possible, or too long for a status, is empty; in the place
    of a command there is then a comment that says what to do."""

    kubectl: str
    kustomize: str = ""
    helm_values: str = ""


def patches_of(workload: WorkloadView, container: ContainerView, after: ContainerWords, setting: Setting) -> Patches:
    """Changes the limits and nothing else, and only where the values still stand as read."""
    changes = setting_changes(workload, container, after, setting)
    if isinstance(changes, NotWritable):
        return Patches(f"# {changes.message}"[:MAX_PATCH_CHARACTERS])
    return Patches(_kubectl(workload, container, changes), _kustomize(changes), _values(workload, container, setting))


def setting_changes(
    workload: WorkloadView, container: ContainerView, after: ContainerWords, setting: Setting
) -> tuple[FieldChange, ...] | NotWritable:
    """The fields that change, and how: of the container, or of the object that a controller makes it from."""
    if workload.source is None or not workload.made_by_controller:
        return _of_words(workload, container, after)
    target = workload.source.items[0]
    answer = adapter_of(target).propose(target, workload.source, Asked(setting, None))
    return changes_of(answer.edits) if answer.edits else NotWritable(answer.reason, answer.message)


def _of_words(workload: WorkloadView, container: ContainerView, after: ContainerWords) -> tuple[FieldChange, ...]:
    index = next(i for i, c in enumerate(workload.containers) if c.name == container.name)
    pairs = (
        ("command", container.words.command, after.command),
        ("args", container.words.args, after.args),
    )
    api_version = workload.source.items[0].api_version if workload.source is not None else "apps/v1"
    return tuple(
        FieldChange.model_construct(
            api_version=api_version,
            kind=workload.kind,
            name=workload.name,
            path=pointer((*workload.template_path, "spec", "containers", index, field)),
            before=None if old is None else json.dumps(old),
            after=json.dumps(new),
        )
        for field, old, new in pairs
        if old != new
    )


def _operations(changes: Sequence[FieldChange]) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for change in changes:
        if change.before is not None:
            operations.append({"op": "test", "path": change.path, "value": json.loads(change.before)})
        operations.append({"op": "add", "path": change.path, "value": json.loads(change.after or "null")})
    return operations


def _kubectl(workload: WorkloadView, container: ContainerView, changes: Sequence[FieldChange]) -> str:
    first = changes[0] if changes else None
    helper = first is not None and (first.kind, first.name) != (workload.kind, workload.name)
    words = (first.kind.lower(), first.name) if first and helper else (workload.resource, workload.name)
    where, namespace = shlex.join(words), shlex.quote(workload.namespace)
    patch = shlex.quote(json.dumps(_operations(changes)))
    command = f"kubectl -n {namespace} patch {where} --type=json -p {patch}"
    if len(command) <= MAX_PATCH_CHARACTERS:
        return command
    return (
        f"kubectl -n {namespace} edit {where} "
        f"# container {container.name}: its words are too long for a patch in a status, set the two limits by hand"
    )


def _kustomize(changes: Sequence[FieldChange]) -> str:
    """An entry of `patches` in a kustomization, also in `postRenderers` of Flux's HelmRelease."""
    if not changes:
        return ""
    group, _, version = changes[0].api_version.rpartition("/")
    target = {"group": group, "version": version, "kind": changes[0].kind, "name": changes[0].name}
    operations = yaml.safe_dump(_operations(changes), sort_keys=False, width=_LINE_CHARACTERS)
    entry = {"patches": [{"target": {k: v for k, v in target.items() if v}, "patch": operations}]}
    text = _dump(entry)
    return text if len(text) <= MAX_PATCH_CHARACTERS else ""


def _values(workload: WorkloadView, container: ContainerView, setting: Setting) -> str:
    """Of the production stack's chart, whose extraArgs come last and win."""
    owner = owner_of({"labels": workload.labels, "annotations": workload.annotations, "name": workload.name})
    chart = str(workload.labels.get("helm.sh/chart", ""))
    model = workload.labels.get("model")
    if owner is None or not chart.startswith(_STACK_CHART) or not model:
        return ""
    config = {
        "maxNumSeqs": setting.max_num_seqs,
        "extraArgs": [f"--max-num-batched-tokens={setting.max_num_batched_tokens}"],
    }
    text = _dump({"servingEngineSpec": {"modelSpec": [{"name": model, "vllmConfig": config}]}})
    return (
        "# Of this model set these; keep its other values, and the rest of extraArgs without the two limits.\n" + text
    )


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stay readable."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _dump(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=_LINE_CHARACTERS)
