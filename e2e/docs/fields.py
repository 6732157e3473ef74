"""The fields of the custom resources as pages, from the definitions that the API server gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kneekeeper.api.crds import KINDS, Kind, definition
from kneekeeper.api.model import API_VERSION
from kneekeeper.api.quantities import DURATION_PATTERN, QUANTITY_PATTERN
from kneekeeper.api.rules import VALIDATIONS
from kneekeeper.api.schema import Schema, description_of

FOLDER = "reference"


@dataclass(frozen=True)
class Place:
    """Where an object's fields are told."""

    page: str
    path: str

    def link_from(self, page: str) -> str:
        """A link of Markdown."""
        file = "" if page == self.page else self.page
        return f"[`{self.path}`]({file}#{_anchor(self.path)})"


def page_name(kind: Kind) -> str:
    """In FOLDER."""
    return f"{kind.name.lower()}.md"


def pages() -> dict[str, str]:
    """Every page by its name. An object that stands in several places is told once, where it comes first."""
    told: dict[tuple[str, ...], Place] = {}
    return {page_name(kind): _page(kind, told) for kind in KINDS}


def _page(kind: Kind, told: dict[tuple[str, ...], Place]) -> str:
    version = definition(kind)["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    lines = [
        f"# {kind.name}",
        "",
        "<!-- Written by `make reference` from operator/kneekeeper/api. -->",
        "",
        description_of(kind.resource),
        "",
        f"`apiVersion: {API_VERSION}`, `kind: {kind.name}`, for kubectl `{kind.plural}` or `{kind.short_name}`. "
        "Fields in bold are required. Durations are written as in Kubernetes (`500ms`, `10m`).",
        "",
        *_rules(schema),
    ]
    for root in ("spec", "status"):
        lines += _object(schema["properties"][root], Place(page_name(kind), root), told)
    lines += ["## Columns of kubectl", "", "| column | shown | what it is |", "| --- | --- | --- |"]
    for column in kind.columns:
        shown = "with `-o wide`" if column.priority else "always"
        lines.append(f"| {column.name} | {shown} | {column.description} |")
    return "\n".join([*lines, ""])


def _object(schema: Schema, place: Place, told: dict[tuple[str, ...], Place]) -> Iterator[str]:
    """The section of an object, then those of the objects in it that were not told before."""
    told[_identity(schema)] = place
    required = set(schema.get("required", ()))
    level = "##" if "." not in place.path else "###"
    yield from (f"{level} `{place.path}`", "", schema["description"], "")
    inner: list[tuple[Schema, Place]] = []
    yield from ("| field | type | default | what it is |", "| --- | --- | --- | --- |")
    for name, child in schema["properties"].items():
        shown = f"**`{name}`**" if name in required else f"`{name}`"
        nested, suffix = _inside(child)
        kind = _type_of(child)
        if nested is not None:
            known = told.get(_identity(nested))
            target = known or Place(place.page, f"{place.path}.{name}{suffix}")
            if known is None:
                told[_identity(nested)] = target
                inner.append((nested, target))
            kind = f"{'list of ' if suffix else ''}{target.link_from(place.page)}"
        default = f"`{json.dumps(child['default'])}`" if "default" in child and nested is None else ""
        about = " ".join([child.get("description", ""), *_bounds(child)])
        yield f"| {shown} | {kind} | {_cell(default)} | {_cell(about)} |"
    yield ""
    yield from _rules(schema)
    for nested, target in inner:
        yield from _object(nested, target, told)


def _rules(schema: Schema) -> Iterator[str]:
    if rules := schema.get(VALIDATIONS):
        yield from ("What the API server refuses, in its words:", "")
        yield from (f"- {rule['message']}" for rule in rules)
        yield ""


def _bounds(schema: Schema) -> Iterator[str]:
    """What a field's own rules ask of it."""
    if "properties" not in schema:
        yield from (f"It {rule['message']}." for rule in schema.get(VALIDATIONS, ()))


def _inside(schema: Schema) -> tuple[Schema | None, str]:
    """The object in a field, and what its path ends with where it is in a list."""
    if schema["type"] == "array" and "properties" in schema["items"]:
        return schema["items"], "[]"
    return (schema, "") if "properties" in schema else (None, "")


def _type_of(schema: Schema) -> str:
    match schema:
        case {"enum": choices}:
            return ", ".join(f"`{choice}`" for choice in choices)
        case {"type": "array", "items": items}:
            return f"list of {_type_of(items)}"
        case {"type": "object", "additionalProperties": values}:
            return f"map of {_type_of(values)}"
        case {"type": "integer", "minimum": low, "maximum": high}:
            return f"integer, {low} to {high}"
        case {"pattern": pattern} if pattern == QUANTITY_PATTERN:
            return "number"
        case {"pattern": pattern} if pattern == DURATION_PATTERN:
            return "duration"
        case {"format": "date-time"}:
            return "time"
        case _:
            return str(schema["type"])


def _identity(schema: Schema) -> tuple[str, ...]:
    """Objects with fields of the same names and types are of one model."""
    return tuple(sorted(f"{name} {_type_of(child)}" for name, child in schema["properties"].items()))


def _anchor(path: str) -> str:
    """Of its heading, as mkdocs and GitHub make it."""
    return path.replace(".", "").replace("[]", "").lower()


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
