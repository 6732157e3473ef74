"""Plain data (mappings, lists, scalars), paths into it, and the steps from one state to another."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Change:
    """The value at `path` becomes `value`; a last key that is missing is added."""

    path: Path
    value: Any


@dataclass(frozen=True)
class Step:
    """One scalar that is replaced, one item that is appended, or one key that is added."""

    path: Path
    value: Any
    exists: bool


class NoStepError(ValueError):
    """Two values differ in another way than by replaced scalars and added items or keys."""


def value_at(data: Any, path: Path) -> Any:
    """The value at `path`, None where there is none."""
    for key in path:
        if isinstance(data, Mapping) and isinstance(key, str):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            return None
    return data


def with_changes(data: Any, changes: Sequence[Change]) -> Any:
    """A copy of `data` with the changes. Raises NoStepError where the place of a change does not exist.

    Values that the text shares by an alias are separate in the copy: a change means one place.
    """
    result = _separate(data)
    for change in changes:
        _put(result, change.path, _separate(change.value))
    return result


def with_step(data: Any, step: Step) -> Any:
    """A copy of `data` with one step. Values that the text shares stay shared, as they do in the text."""
    result = copy.deepcopy(data)
    _put(result, step.path, copy.deepcopy(step.value))
    return result


def _separate(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _separate(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_separate(item) for item in data]
    return data


def _put(data: Any, path: Path, value: Any) -> None:
    parent = value_at(data, path[:-1])
    key = path[-1]
    if isinstance(parent, dict) and isinstance(key, str):
        parent[key] = value
    elif isinstance(parent, list) and isinstance(key, int) and key <= len(parent):
        parent[key : key + 1] = [value]
    else:
        raise NoStepError(path_text(path, data))


def next_step(old: Any, new: Any, path: Path = ()) -> Step | None:
    """The first step from `old` to `new`, None where they are equal. Raises NoStepError."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in new.items():
            if key not in old:
                return Step((*path, key), value, exists=False)
            step = next_step(old[key], value, (*path, key))
            if step is not None:
                return step
        if old.keys() - new.keys():
            raise NoStepError(path_text(path, old))
        return None
    if isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            step = next_step(one, other, (*path, index))
            if step is not None:
                return step
        if len(new) < len(old):
            raise NoStepError(path_text(path, old))
        return Step((*path, len(old)), new[len(old)], exists=False) if len(new) > len(old) else None
    if old == new and type(old) is type(new):
        return None
    if isinstance(old, dict | list):
        raise NoStepError(path_text(path, old))
    return Step(path, new, exists=True)


def path_text(path: Path, data: Any = None) -> str:
    """`spec/containers[engine]/args[0]`: an item of a list by its name, where `data` tells it, else by its place."""
    text = ""
    for at, key in enumerate(path):
        if isinstance(key, str):
            text += f"/{key}" if text else key
            continue
        item = value_at(data, path[: at + 1])
        name = item.get("name") if isinstance(item, Mapping) else None
        text += f"[{name}]" if isinstance(name, str) else f"[{key}]"
    return text
