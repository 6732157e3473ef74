"""The tree of a script. Positions are those of the text that the shell receives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Quoting(StrEnum):
    """Whether a part of a word is split and matched against file names."""

    BARE = "Bare"
    QUOTED = "Quoted"


@dataclass(frozen=True)
class Text:
    """Characters as they stand, each with its position; none where quotes hold nothing."""

    chars: tuple[tuple[str, int], ...]
    quoting: Quoting


@dataclass(frozen=True)
class Parameter:
    """`$NAME`, `${NAME}` or `${NAME<operator>default}`; the operators are :- - := = :+ + :? ?"""

    name: str
    operator: str
    default: tuple[Part, ...]
    start: int
    end: int
    quoting: Quoting


@dataclass(frozen=True)
class Arithmetic:
    """`$((…))`; the parts give the expression."""

    parts: tuple[Part, ...]
    start: int
    end: int
    quoting: Quoting


@dataclass(frozen=True)
class AllArguments:
    """`$@` or `$*`"""

    name: str
    start: int
    end: int
    quoting: Quoting


@dataclass(frozen=True)
class Unknown:
    """What only a run can tell: a command's output, `$?`, `${NAME%pattern}`, `~`."""

    start: int
    end: int
    quoting: Quoting


Part = Text | Parameter | Arithmetic | AllArguments | Unknown


@dataclass(frozen=True)
class ShellWord:
    """One word before expansion."""

    parts: tuple[Part, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Assignment:
    """`NAME=value`, or `NAME+=value`."""

    name: str
    appends: str  # "+" or ""
    value: ShellWord


@dataclass(frozen=True)
class Simple:
    """A command with its words; redirections change no word and are left out."""

    assignments: tuple[Assignment, ...]
    words: tuple[ShellWord, ...]


@dataclass(frozen=True)
class Test:
    """`[[ … ]]`"""


@dataclass(frozen=True)
class Pipeline:
    """Commands joined by `|`; each of several runs in a shell of its own."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Chain:
    """Pipelines joined by `&&` and `||`; `operators` has one item less."""

    pipelines: tuple[Pipeline, ...]
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A chain, in the background or not."""

    chain: Chain
    background: bool


@dataclass(frozen=True)
class Script:
    """Steps one after the other."""

    steps: tuple[Step, ...]


class Scope(StrEnum):
    """Whether a group's assignments stay."""

    SAME_SHELL = "{}"
    SUBSHELL = "()"


@dataclass(frozen=True)
class Group:
    """`{ …; }` or `( … )`"""

    body: Script
    scope: Scope


@dataclass(frozen=True)
class If:
    """`conditions` are those of if and elif; `branches` has an else as one more."""

    conditions: tuple[Script, ...]
    branches: tuple[Script, ...]


@dataclass(frozen=True)
class Loop:
    """`while`, `until` or `for`; `variable` is that of a `for`."""

    variable: str | None
    condition: Script
    body: Script


Command = Simple | Test | Group | If | Loop
