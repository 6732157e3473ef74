"""The words of a container, where each stands, and what the kubelet makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.domain.arguments.expansion import expand


class WordList(StrEnum):
    """The field of the container that holds a word."""

    COMMAND = "command"
    ARGS = "args"


@dataclass(frozen=True)
class Word:
    """One item of `command` or `args`: as written, and as the process receives it."""

    raw: str
    text: str
    unresolved: tuple[str, ...]  # variables whose value is not known; their references are still in `text`
    source: WordList
    index: int


def words_of(command: Sequence[str] | None, args: Sequence[str] | None, env: Mapping[str, str]) -> tuple[Word, ...]:
    """All words in the order in which the process receives them."""
    return tuple(
        Word(raw, expanded.text, expanded.unresolved, source, index)
        for source, items in ((WordList.COMMAND, command or ()), (WordList.ARGS, args or ()))
        for index, raw in enumerate(items)
        for expanded in [expand(raw, env)]
    )
