"""vLLM's release numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.\-+a-z].*)?")


class InvalidEngineVersionError(ValueError):
    """A version text that is none."""


@dataclass(frozen=True, order=True)
class EngineVersion:
    """A vLLM release; pre-releases and local builds count as the release that they lead to."""

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """From "0.32.0", "v0.20.0" or "0.33.0rc1.dev12+gabc". Raises InvalidEngineVersionError."""
        found = _VERSION.fullmatch(text.strip())
        if found is None:
            raise InvalidEngineVersionError(
                f"{text!r} is not a vLLM version; /version of the engine or the image's tag should say 0.32.0"
            )
        major, minor, patch = found.groups()
        return cls(int(major), int(minor), int(patch or 0))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"
