"""A file of Kubernetes objects: their values, and where in the text each value stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import yaml

from kneekeeper.domain.manifests.values import Path

# libyaml reads fast where it is built in; positions always come from the Python parser.
VALUE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# Besides its own errors, PyYAML lets errors of Python's constructors through, for values with a wrong tag.
YAML_ERRORS = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


MOST_VALUES = 1_000_000
"""Of a file, with each alias written out."""

DEEPEST = 100
"""Levels of a value."""


class NotAManifestError(ValueError):
    """The text is no YAML or JSON of Kubernetes objects; the message says where and what to do."""


@dataclass(frozen=True)
class ManifestObject:
    """One object. `document` and `path` tell where it stands; a `List` holds several."""

    document: int
    path: Path
    value: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.value.get("kind", ""))

    @property
    def api_version(self) -> str:
        return str(self.value.get("apiVersion", ""))

    @property
    def api_group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def metadata(self) -> Mapping[str, Any]:
        metadata = self.value.get("metadata")
        return metadata if isinstance(metadata, Mapping) else {}

    @property
    def name(self) -> str:
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace", ""))


@dataclass(frozen=True)
class ManifestFile:
    """A text and its objects, in their order."""

    text: str
    documents: tuple[Any, ...]
    objects: tuple[ManifestObject, ...]


def read_manifests(text: str) -> ManifestFile:
    """Raises NotAManifestError."""
    try:
        documents = tuple(yaml.load_all(text, Loader=VALUE_LOADER))
    except YAML_ERRORS as error:
        raise NotAManifestError(
            f"This is no YAML{what_is_wrong(error)}. "
            "Render templates first, for example with `helm template` or `kustomize build`."
        ) from error
    if _count(documents, {}, 0) > MOST_VALUES:
        raise NotAManifestError(
            f"With its aliases written out it holds more than {MOST_VALUES:,} values, or is nested deeper than "
            f"{DEEPEST} levels. Write it without them."
        )
    objects = tuple(found for index, value in enumerate(documents) for found in _objects(index, (), value))
    if not objects:
        raise NotAManifestError(
            "The file holds no Kubernetes object: nothing in it has apiVersion and kind. Values of a chart and patches "
            "of Kustomize become objects by `helm template` and `kustomize build`."
        )
    return ManifestFile(text, documents, objects)


def what_is_wrong(error: Exception) -> str:
    """` (line 3, column 7): …`, in one line."""
    mark = getattr(error, "problem_mark", None)
    where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return f"{where}: {problem}"


def _count(value: Any, counted: dict[int, int], depth: int) -> int:
    """The values in it, those that an alias repeats again each time; more than MOST_VALUES where it has no end."""
    if not isinstance(value, dict | list | tuple):
        return 1
    if depth > DEEPEST:
        return MOST_VALUES + 1
    if id(value) not in counted:
        items = value.values() if isinstance(value, dict) else value
        counted[id(value)] = 1 + sum(_count(item, counted, depth + 1) for item in items)
    return counted[id(value)]


def _objects(document: int, path: Path, value: Any) -> Iterator[ManifestObject]:
    if not isinstance(value, dict) or not (value.get("kind") and value.get("apiVersion")):
        return
    items = value.get("items")
    if str(value["kind"]).endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            yield from _objects(document, (*path, "items", index), item)
    else:
        yield ManifestObject(document, path, value)


@dataclass(frozen=True)
class Place:
    """A node of a document and the characters `start:end` where it is used: an alias stands for its anchor's."""

    node: yaml.Node
    start: int
    end: int
    is_alias: bool = False


class Positions:
    """The nodes of a text's documents with their places. Raises YAML_ERRORS."""

    @classmethod
    def of(cls, text: str) -> Positions:
        """Tabs between tokens, as in JSON of many tools, are read like spaces, which libyaml does and PyYAML not."""
        try:
            return cls(text)
        except YAML_ERRORS:
            if "\t" not in text:
                raise
            return cls(text.replace("\t", " "))

    def __init__(self, text: str) -> None:
        self._starts = {
            token.end_mark.index: token.start_mark.index
            for token in yaml.scan(text, Loader=yaml.SafeLoader)
            if isinstance(token, yaml.ScalarToken)
        }
        loader = _Loader(text)
        try:
            self._roots: list[yaml.Node] = []
            while loader.check_node():
                self._roots.append(cast(yaml.Node, loader.get_node()))
        finally:
            loader.dispose()
        self._aliases = loader.aliases

    def root(self, document: int) -> Place:
        node = self._roots[document]
        return Place(node, node.start_mark.index, node.end_mark.index)

    def child(self, parent: Place, key: str | int) -> Place | None:
        """None where `parent` has no such key of its own, so that it comes from a merged mapping."""
        node = parent.node
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            return self._place(node, key, node.value[key])
        if isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if isinstance(k, yaml.ScalarNode) and k.value == key]
            if found:
                return self._place(node, found[-1][0], found[-1][1])
        return None

    def last_child(self, parent: Place) -> Place | None:
        node = parent.node
        if isinstance(node, yaml.SequenceNode) and node.value:
            return self._place(node, len(node.value) - 1, node.value[-1])
        if isinstance(node, yaml.MappingNode) and node.value:
            key, value = node.value[-1]
            return self._place(node, key, value)
        return None

    def _place(self, parent: yaml.Node, index: Any, node: yaml.Node) -> Place:
        alias = self._aliases.get((id(parent), index if isinstance(index, int) else id(index)))
        if alias is not None:
            return Place(node, *alias, is_alias=True)
        end = node.end_mark.index
        if isinstance(node, yaml.ScalarNode):  # without its anchor and tag
            return Place(node, self._starts.get(end, end), end)
        return Place(node, node.start_mark.index, end)


class _Loader(yaml.SafeLoader):
    """Remembers where aliases stand."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.aliases: dict[tuple[int, int], tuple[int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            key = (id(parent), index if isinstance(index, int) else id(index))
            self.aliases[key] = (event.start_mark.index, event.end_mark.index)
        return super().compose_node(parent, index)
