"""Writes to the tuned workload: one container's words or the fields that they come from, and the replica count.

Nothing else is ever touched.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kneekeeper.api.rollout import ContainerWords, FieldChange
from kneekeeper.api.serving_profile import TargetRef
from kneekeeper.domain.actions import ScaleWorkload, WriteWords
from kneekeeper.domain.manifests import value_at
from kneekeeper.domain.targets.fields import by_object, json_patch, reversed_changes, stand_as, stand_as_before
from kneekeeper.domain.targets.kinds import TargetKind
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import Conflict, Invalid
from kneekeeper.kube.resources import CONFIG_MAPS, Kind, Resource
from kneekeeper.kube.targets import described, kind_of, template_path, words_of

_log = logging.getLogger(__name__)

SCALE_ATTEMPTS = 3


async def write_words(kube: Kube, namespace: str, target: TargetRef, action: WriteWords) -> bool:
    """Put the words in place, and say whether they were put; other words than `before` are left alone.

    The patch tests the container's name and words, so that nothing is lost to a write in between, while a
    mere status update in between does no harm. Raises KubeErrors.
    """
    kind = kind_of(target)
    if action.fields:
        return await _write_fields(kube, namespace, target, action.fields)
    described_kind = described(target)
    patch = _words_patch(await kube.get(kind, namespace, target.name), described_kind, action)
    if patch is None:
        return False
    try:
        await kube.json_patch(kind, namespace, target.name, patch)
    except Invalid:
        # The API server tells a test that failed from refused content by its wording only: look again.
        if _words_patch(await kube.get(kind, namespace, target.name), described_kind, action) == patch:
            raise
        _log.info("the words of %s changed while they were written; they are left alone", target.name)
        return False
    return True


async def _write_fields(kube: Kube, namespace: str, target: TargetRef, changes: tuple[FieldChange, ...]) -> bool:
    """The same for fields of the target itself, or of a ConfigMap of its; nothing where one is not as it was read.

    What is written of the first object and cannot be of the second is taken back.
    """
    kinds = {CONFIG_MAPS.name: CONFIG_MAPS}
    pending = [(kinds.get(group[0].kind) or kind_of(target), group) for group in by_object(changes)]
    for kind, group in pending:
        found = await kube.get(kind, namespace, group[0].name)
        if not (stand_as_before(found, group) or stand_as(found, group)):
            return False
    written: list[tuple[Kind, tuple[FieldChange, ...]]] = []
    for kind, group in pending:
        try:
            if await _write_group(kube, kind, namespace, group):
                written.append((kind, group))
        except _ChangedMeanwhileError:
            for place, done in reversed(written):
                await _write_group(kube, place, namespace, reversed_changes(done))
            _log.info("the fields of %s are not as they were read; they are left alone", target.name)
            return False
    return bool(written)


class _ChangedMeanwhileError(Exception):
    """Others wrote one of the fields between read and write."""


async def _write_group(kube: Kube, kind: Kind, namespace: str, changes: tuple[FieldChange, ...]) -> bool:
    """Of one object, all or none; False where all are in place already."""
    name = changes[0].name
    patch = json_patch(await kube.get(kind, namespace, name), changes)
    if not patch:
        return False
    try:
        await kube.json_patch(kind, namespace, name, patch)
    except Invalid as error:
        # The API server tells a test that failed from refused content by its wording only: look again.
        if stand_as_before(await kube.get(kind, namespace, name), changes):
            raise
        raise _ChangedMeanwhileError from error
    return True


def _words_patch(workload: Resource, kind: TargetKind, action: WriteWords) -> list[dict[str, Any]] | None:
    template = template_path(kind, workload)
    containers: list[Mapping[str, Any]] = value_at(workload, (*template, "spec", "containers"))
    found = next(((i, c) for i, c in enumerate(containers) if c["name"] == action.container), None)
    if found is None:
        return None
    index, container = found
    if words_of(container) != _normal(action.before):
        return None
    path = f"/{'/'.join(map(str, template))}/spec/containers/{index}"
    before, after = _normal(action.before), _normal(action.after)
    patch: list[dict[str, Any]] = [{"op": "test", "path": f"{path}/name", "value": action.container}]
    fields = (("command", before.command, after.command), ("args", before.args, after.args))
    # A test for null holds where the field is absent.
    patch += [{"op": "test", "path": f"{path}/{field}", "value": old} for field, old, _ in fields]
    for field, old, new in fields:
        if old == new:
            continue
        if new is None:
            patch.append({"op": "remove", "path": f"{path}/{field}"})
        else:
            patch.append({"op": "add", "path": f"{path}/{field}", "value": new})
    return patch if len(patch) > 1 + len(fields) else None


def _normal(words: ContainerWords) -> ContainerWords:
    """An empty list is stored as none."""
    return ContainerWords(command=words.command or None, args=words.args or None)


async def scale(kube: Kube, namespace: str, target: TargetRef, action: ScaleWorkload) -> bool:
    """Set the replicas, and say whether they were set; any count but `expected` is left alone.

    Status updates also move the resourceVersion, so a conflict is looked at again before it is raised.
    """
    kind = kind_of(target)
    for attempt in range(1, SCALE_ATTEMPTS + 1):
        current = await kube.get_scale(kind, namespace, target.name)
        spec = current.get("spec") or {}
        if int(spec.get("replicas", 0)) != action.expected:
            return False
        body = {**current, "spec": {**spec, "replicas": action.wanted}}
        try:
            await kube.replace_scale(kind, namespace, target.name, body)
        except Conflict:
            if attempt == SCALE_ATTEMPTS:
                raise
        else:
            return True
    return False
