"""Which object is meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True)
class Key:
    """A profile, or a run."""

    namespace: str
    name: str

    @classmethod
    def of(cls, metadata: dict[str, Any]) -> Key:
        """Of an object's metadata."""
        return cls(metadata.get("namespace", "default"), metadata["name"])
