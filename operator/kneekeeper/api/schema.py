"""Pydantic model to structural OpenAPI v3 schema, as a CustomResourceDefinition wants it.

Structural means: no references, a type at every node, no unions. Every string, list and map is bounded and
every integer has a range, since the API server refuses CEL rules whose worst-case cost it cannot bound.
Optional fields may be absent but never null: what a model writes leaves out what is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel

from kneekeeper.api.model import ApiModel
from kneekeeper.api.rules import IMMUTABLE_CEL, VALIDATIONS, Rule, rules_of

Schema = dict[str, Any]
"""A JSON schema node. It leaves this package only inside a finished definition."""

_INT32_MAX = 2**31 - 1

_NOTHING: tuple[Any, ...] = (None, "", [], {})

_COPIED = (
    "pattern",
    "format",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    VALIDATIONS,
)


class SchemaError(Exception):
    """A model that has no structural schema; the message names the field and what it lacks."""


def spec_schema(model: type[ApiModel]) -> Schema:
    """The schema of what users write: with defaults and rules."""
    return _Builder(model).root()


def status_schema(model: type[ApiModel]) -> Schema:
    """The schema of what only the operator writes: without defaults and rules.

    The operator validates a status with the model before it sends it, and a default that the server
    adds would only make what is read differ from what was written.
    """
    return _without(_Builder(model).root(), ("default", VALIDATIONS))


def description_of(model: type[ApiModel]) -> str:
    """The first paragraph of the class docstring, on one line."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


class _Builder:
    def __init__(self, model: type[ApiModel]) -> None:
        self._model = model
        # "serialization" writes defaults as they stand in the resource ("2m", not 120.0).
        self._json = model.model_json_schema(mode="serialization", by_alias=True)
        self._classes = {cls.__name__: cls for cls in _models_in(model)}

    def root(self) -> Schema:
        return self._object(self._json, self._model.__name__)

    def _object(self, node: Mapping[str, Any], path: str) -> Schema:
        cls = self._classes[node["title"]]
        schema: Schema = {"type": "object", "description": description_of(cls)}
        if required := sorted(node.get("required", [])):
            schema["required"] = required
        schema["properties"] = {
            name: self._property(child, f"{path}.{name}") for name, child in node["properties"].items()
        }
        if rules := [*_transition_rules(cls), *(rule for rule, _ in rules_of(cls))]:
            schema[VALIDATIONS] = [rule.to_schema() for rule in rules]
        return schema

    def _property(self, node: Mapping[str, Any], path: str) -> Schema:
        schema = self._value(_not_null(node, path), path)
        if "description" in node:
            schema["description"] = node["description"]
        # A default object is written out in full: the server checks rules on it before it fills it in.
        if (default := _told(node.get("default"))) not in _NOTHING:
            schema["default"] = default
        return schema

    def _value(self, node: Mapping[str, Any], path: str) -> Schema:
        if reference := node.get("$ref"):
            return self._value(self._json["$defs"][reference.rpartition("/")[2]], path)
        kind = node.get("type")
        if "enum" in node:
            return {"type": "string", "enum": list(node["enum"])}
        schema: Schema = {"type": kind} | {key: node[key] for key in _COPIED if key in node}
        match kind:
            case "object" if "properties" in node:
                return self._object(node, path)
            case "object":
                _require(node, path, "maxProperties")
                schema["additionalProperties"] = self._value(node["additionalProperties"], f"{path}.*")
            case "array":
                _require(node, path, "maxItems")
                schema["items"] = self._value(node["items"], f"{path}[]")
            case "string" if "format" not in node:
                _require(node, path, "maxLength")
            case "integer":
                _require(node, path, "minimum", "maximum")
                schema["format"] = "int32" if node["maximum"] <= _INT32_MAX else "int64"
            case "string" | "boolean":
                pass
            case _:
                raise SchemaError(f"{path}: {kind} has no place in a resource; use an integer or a string")
        return schema


def _not_null(node: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The one schema of an optional field; absent stands for None."""
    if "anyOf" not in node:
        return node
    branches = [branch for branch in node["anyOf"] if branch.get("type") != "null"]
    if len(branches) != 1:
        raise SchemaError(f"{path}: a union has no structural schema; use one field per kind")
    branch: Mapping[str, Any] = branches[0]
    return branch


def _require(node: Mapping[str, Any], path: str, *keys: str) -> None:
    for key in keys:
        if key not in node:
            raise SchemaError(f"{path}: needs {key}, else CEL rules near it cost too much; bound it with Field")


def _transition_rules(cls: type[ApiModel]) -> Iterator[Rule]:
    if cls.immutable:
        yield Rule(IMMUTABLE_CEL, cls.immutable)


def _told(default: Any) -> Any:
    """A default without the parts that tell no more than their absence does."""
    if isinstance(default, dict):
        told = {key: _told(value) for key, value in default.items()}
        return {key: value for key, value in told.items() if value not in _NOTHING}
    return default


def _without(schema: Schema, keys: tuple[str, ...]) -> Schema:
    """A copy in which no node carries `keys`; property names are not keys."""
    kept = {key: value for key, value in schema.items() if key not in keys}
    if "properties" in kept:
        kept["properties"] = {name: _without(child, keys) for name, child in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = _without(kept[key], keys)
    return kept


def _models_in(model: type[ApiModel]) -> Iterator[type[ApiModel]]:
    """The model and every model that its fields mention."""
    pending: list[Any] = [model]
    seen: set[Any] = set()
    while pending:
        item = pending.pop()
        pending.extend(getattr(item, "__args__", ()))
        if not isinstance(item, type) or issubclass(item, Enum) or not issubclass(item, BaseModel):
            continue
        if item in seen:
            continue
        seen.add(item)
        if issubclass(item, ApiModel):
            yield item
        pending.extend(field.annotation for field in item.model_fields.values())
