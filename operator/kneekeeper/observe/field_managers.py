"""Who wrote a field last, by what the API server keeps of every write. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kneekeeper.domain.manifests import Path

_WORD_FIELDS = ("f:args", "f:command")


def last_writer_of_words(metadata: Mapping[str, Any], template: Path) -> str:
    """The field manager of the newest write that owns a container's words, under the pod template at this path.

    An entry's time is that of the manager's last write to any of its fields: close enough for a message.
    """
    return _newest([entry for entry in _entries(metadata) if _owns_words(entry, template)])


def last_writer_of_spec(metadata: Mapping[str, Any]) -> str:
    """The field manager of the newest write to the spec."""
    return _newest([entry for entry in _entries(metadata) if "f:spec" in (entry.get("fieldsV1") or {})])


def _entries(metadata: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (entry for entry in metadata.get("managedFields") or [] if not entry.get("subresource"))


def _newest(entries: list[Mapping[str, Any]]) -> str:
    writers = [(str(entry.get("time") or ""), str(entry.get("manager") or "")) for entry in entries]
    return max(writers)[1] if writers else ""


def _owns_words(entry: Mapping[str, Any], template: Path) -> bool:
    fields: Any = entry.get("fieldsV1") or {}
    for key in (*(f"f:{step}" for step in template), "f:spec", "f:containers"):
        if key not in fields:
            return False
        fields = fields[key]
        if not fields:  # a list or an object that is owned as a whole, as in many custom resources
            return True
    containers = (value for key, value in fields.items() if key.startswith("k:"))
    return any(name in container for container in containers for name in _WORD_FIELDS)
