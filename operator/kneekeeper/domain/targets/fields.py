"""A setting as values of fields: what is written where a controller makes the workload from another object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kneekeeper.api.rollout import FieldChange
from kneekeeper.domain.arguments import RefusalReason, VariableUse
from kneekeeper.domain.manifests import Path, value_at
from kneekeeper.domain.targets.model import Asked, Edit, Objects, Outcome
from kneekeeper.domain.targets.planning import adapter_of

LONGEST_VALUE = 16_384
"""Characters of a value as JSON; as many as a profile's status holds."""


@dataclass(frozen=True)
class NotWritable:
    """Why the object's fields are not written; `reason` is a condition's reason, `message` has the next step."""

    reason: str
    message: str


def field_changes(source: Objects, asked: Asked) -> tuple[FieldChange, ...] | NotWritable:
    """The changes of the first object, which declares the engine, that give it the setting; the others help to read it.

    That the engine is vLLM was seen from the words of its pods: a runtime that is not at hand does not matter.
    """
    target = source.items[0]
    answer = adapter_of(target).propose(target, source, asked)
    known_by_pods = answer.reason == RefusalReason.ENTRYPOINT_UNKNOWN and answer.edits
    if answer.outcome is not Outcome.REWRITE and not known_by_pods:
        return NotWritable(answer.reason, answer.message)
    return changes_of(answer.edits)


def variable_changes(source: Objects, asked: Asked) -> tuple[FieldChange, ...] | NotWritable:
    """The same where the words take both limits from variables of the container: only entries of `env` change."""
    found = field_changes(source, replace(asked, variables=VariableUse.SET_KUBELETS))
    if isinstance(found, NotWritable):
        return found
    others = [change.path for change in found if "/env/" not in change.path and not change.path.endswith("/env")]
    if others:
        message = (
            "The words do not take both limits from variables with a literal value in the container's env. Write "
            "--max-num-seqs=$(MAX_NUM_SEQS) and the like, or set spec.updatePolicy.method to Args."
        )
        return NotWritable("NoVariables", message)
    return found


def changes_of(edits: Sequence[Edit]) -> tuple[FieldChange, ...] | NotWritable:
    """Edits with the values that stand there, so that they can be tested for and put back."""
    changes: list[FieldChange] = []
    for edit in edits:
        path, value = _from_what_exists(edit.subject.value, edit.path, edit.value)
        before = value_at(edit.subject.value, path)
        texts = (None if before is None else json.dumps(before), json.dumps(value))
        if any(len(text) > LONGEST_VALUE for text in texts if text is not None):
            message = (
                f"{pointer(path)} of {edit.subject.kind} {edit.subject.name} is too long to be kept for a rollback."
            )
            return NotWritable("FieldTooLong", f"{message} Set the limits by hand.")
        changes.append(
            FieldChange(
                api_version=edit.subject.api_version,
                kind=edit.subject.kind,
                name=edit.subject.name,
                path=pointer(path),
                before=texts[0],
                after=json.dumps(value),
            )
        )
    return tuple(changes)


def reversed_changes(changes: Sequence[FieldChange]) -> tuple[FieldChange, ...]:
    """What takes the changes back. One that was nowhere before goes away again."""
    return tuple(change.with_changes(before=change.after, after=change.before) for change in changes)


def since_the_first(earlier: Sequence[FieldChange], later: Sequence[FieldChange]) -> list[FieldChange]:
    """Both in a row as one: from what stood before the earlier ones to what the later ones wrote."""
    joined = {(change.kind, change.name, change.path): change for change in earlier}
    for change in later:
        key = (change.kind, change.name, change.path)
        first = joined.get(key)
        joined[key] = change if first is None else change.with_changes(before=first.before)
    return list(joined.values())


def by_object(changes: Sequence[FieldChange]) -> list[tuple[FieldChange, ...]]:
    """The changes of each object, in the order in which they are written."""
    groups: dict[tuple[str, str], tuple[FieldChange, ...]] = {}
    for change in changes:
        groups[change.kind, change.name] = (*groups.get((change.kind, change.name), ()), change)
    return list(groups.values())


def stand_as(source: Mapping[str, Any], changes: Sequence[FieldChange]) -> bool:
    """Whether the object has the new value of every change."""
    return all(_text_at(source, change) == _canonical(change.after) for change in changes)


def stand_as_before(source: Mapping[str, Any], changes: Sequence[FieldChange]) -> bool:
    """Whether the object has the old value of every change."""
    return all(_text_at(source, change) == _canonical(change.before) for change in changes)


def pointer(path: Path) -> str:
    """As RFC 6901 writes it."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def json_patch(source: Mapping[str, Any], changes: Sequence[FieldChange]) -> list[dict[str, Any]]:
    """Operations of RFC 6902 for what is not yet as wanted; each value is tested for before it is changed.

    A test for null holds where the field is absent; a place behind the end of a list has no test. What goes away goes
    last, from the end of a list to its begin, so that the places of what goes after it hold.
    """
    operations: list[dict[str, Any]] = []
    removals: list[list[dict[str, Any]]] = []
    for change in changes:
        if _text_at(source, change) == _canonical(change.after):
            continue
        before = None if change.before is None else json.loads(change.before)
        test = {"op": "test", "path": change.path, "value": before}
        if change.after is None:
            removals.append([test, {"op": "remove", "path": change.path}])
            continue
        appended = before is None and change.path.rpartition("/")[2].isdecimal()
        how = "add" if before is None else "replace"
        write = {"op": how, "path": change.path, "value": json.loads(change.after)}
        operations += [write] if appended else [test, write]
    return operations + [operation for pair in reversed(removals) for operation in pair]


def _from_what_exists(root: Mapping[str, Any], path: Path, value: Any) -> tuple[Path, Any]:
    """The first step of the path that is missing, with all behind it as its value: a patch adds one step only."""
    for depth in range(1, len(path)):
        if value_at(root, path[:depth]) is None:
            for step in reversed(path[depth:]):
                value = {step: value}
            return path[:depth], value
    return path, value


def _text_at(source: Mapping[str, Any], change: FieldChange) -> str | None:
    value: Any = source
    for step in change.path.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[int(key)] if key.isdecimal() and int(key) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None else json.dumps(value, sort_keys=True)


def _canonical(text: str | None) -> str | None:
    return None if text is None else json.dumps(json.loads(text), sort_keys=True)
