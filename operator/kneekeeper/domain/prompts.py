"""Real prompts, one JSON object a line: `{"text": "…"}` or `{"messages": [{"role": "user", "content": "…"}]}`.

Errors name line and column and never a word of the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from kneekeeper.api.sources import PromptsReport
from kneekeeper.api.stage import Endpoint

TEXT, MESSAGES = "text", "messages"


class PromptError(ValueError):
    """A prompt that cannot be read. The message names line and column (from 1) and the next step."""

    def __init__(self, line: int, column: int, why: str) -> None:
        super().__init__(f"line {line}, column {column}: {why}")
        self.line, self.column = line, column


@dataclass(frozen=True, slots=True, repr=False)
class Prompt:
    """A prompt as a request carries it; it has no repr, so that it gets into no log."""

    content: str | list[Any]

    @property
    def endpoint(self) -> Endpoint:
        """Texts are completed, messages are chats."""
        return Endpoint.COMPLETIONS if isinstance(self.content, str) else Endpoint.CHAT

    @property
    def field(self) -> dict[str, Any]:
        """The field of the request's body."""
        return {"prompt": self.content} if isinstance(self.content, str) else {"messages": self.content}


def read_prompts(lines: Iterable[str]) -> Iterator[Prompt]:
    """The prompts of a file in its order; empty lines are skipped.

    Raises PromptError at the first line that is none, and where there is none at all.
    """
    found = False
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found = True
            yield _prompt(line.removeprefix("\ufeff") if number == 1 else line, number)
    if not found:
        raise PromptError(1, 1, "there is no prompt in it; see docs/workloads.md for the format")


def _prompt(line: str, number: int) -> Prompt:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        column = min(error.pos, len(line.rstrip())) + 1
        raise PromptError(number, column, f"it is not JSON: {error.msg}") from None
    if not isinstance(value, dict) or (TEXT in value) == (MESSAGES in value):
        raise PromptError(number, 1, f"it is not an object with either {TEXT!r} or {MESSAGES!r}")
    key = TEXT if TEXT in value else MESSAGES
    column = max(line.find(f'"{key}"'), 0) + 1
    if key == TEXT:
        if not isinstance(value[key], str) or not value[key]:
            raise PromptError(number, column, f"{TEXT} is not a text with at least one character")
    elif not _are_messages(value[key]):
        raise PromptError(number, column, f"{MESSAGES} is not a list of objects with 'role' and 'content'")
    return Prompt(value[key])


def _are_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and isinstance(each.get("role"), str) and "content" in each for each in value)
    )


def summarise_prompts(lines: Iterable[str]) -> PromptsReport:
    """How many prompts there are, and how long the longest line is. Raises PromptError."""
    longest = 0

    def measured() -> Iterator[str]:
        nonlocal longest
        for line in lines:
            longest = max(longest, len(line.encode()))
            yield line

    count = sum(1 for _ in read_prompts(measured()))
    return PromptsReport(prompts=count, longest_bytes=max(1, longest))
