"""Programs that only run the words behind them, and words that start vLLM in a way that is not followed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol, TypeVar

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
_PROGRAMS = frozenset({"nohup", "setsid", "env"})
_INITS = frozenset({"tini", "dumb-init"})
_BUILTINS = frozenset({"exec", "command"})  # of a shell
_TALKATIVE = frozenset({"echo", "printf", "logger"})


class _Text(Protocol):
    @property
    def text(self) -> str: ...


_Word = TypeVar("_Word", bound=_Text)


def without_wrappers(words: Sequence[_Word], *, in_a_script: bool) -> Sequence[_Word]:
    """The words from the program on that is run in the end."""
    passed_on = _PROGRAMS | _INITS | (_BUILTINS if in_a_script else frozenset())
    rest = list(words)
    while rest and _name(rest[0]) in passed_on:
        wrapper = _name(rest.pop(0))
        if wrapper in _INITS and rest and rest[0].text == "--":
            rest.pop(0)
        while wrapper == "env" and rest and _ASSIGNMENT.fullmatch(rest[0].text):
            rest.pop(0)
    return rest


def mentions_vllm(words: Sequence[_Text]) -> bool:
    """Whether words that are not understood may start vLLM's API server all the same."""
    if not words or words[0].text in _TALKATIVE:
        return False
    names = [_name(word) for word in words]
    serves = any(name == "vllm" and after == "serve" for name, after in pairwise(names))
    nested = any(re.search(r"\bvllm\s+serve\b", word.text) for word in words)
    return serves or nested or any("vllm.entrypoints.openai" in word.text for word in words)


def _name(word: _Text) -> str:
    return word.text.rpartition("/")[2]
