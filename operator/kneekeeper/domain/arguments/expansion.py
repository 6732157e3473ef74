"""`$(VAR)` in a container's command and args, as the kubelet expands it.

Source: Kubernetes, "Define dependent environment variables", and its package
third_party/forked/golang/expansion: `$(NAME)` is replaced when NAME is set, else it stays as it is; `$$` is
one `$`, so `$$(NAME)` is never replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


@dataclass(frozen=True)
class Piece:
    """A part of the expanded text, and the part `start:end` of the raw text that stands for it."""

    text: str
    start: int
    end: int
    replaced: str | None = None  # the variable that was replaced by its value
    unresolved: str | None = None  # the variable whose reference stayed as it is


@dataclass(frozen=True)
class Expanded:
    """The text after expansion, and the names that `env` did not hold, which are still in it."""

    text: str
    unresolved: tuple[str, ...]


def expand(raw: str, env: Mapping[str, str]) -> Expanded:
    """Expand `raw` with what is known of the container's environment.

    `env` need not be complete (values from Secrets are never read), so a name that it lacks is reported.
    """
    pieces = tuple(expand_in_pieces(raw, env))
    return Expanded(
        "".join(piece.text for piece in pieces),
        tuple(piece.unresolved for piece in pieces if piece.unresolved is not None),
    )


def expand_in_pieces(raw: str, env: Mapping[str, str]) -> Iterator[Piece]:
    """The same, with where each part comes from."""
    at = 0
    for found in _REFERENCE.finditer(raw):
        if at < found.start():
            yield Piece(raw[at : found.start()], at, found.start())
        at = found.end()
        name = found.group(1)
        if found.group() == "$$":
            yield Piece("$", found.start(), at)
        elif name in env:
            yield Piece(env[name], found.start(), at, replaced=name)
        else:
            yield Piece(found.group(), found.start(), at, unresolved=name)
    if at < len(raw):
        yield Piece(raw[at:], at, len(raw))
