"""argparse with the next step in its messages."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

PROGRAM = "kneekeeper"

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What each command adds itself to."""

_NO_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$", re.DOTALL)
_EXCLUDED = re.compile(r"argument (\S+): not allowed with argument")


class CommandParser(argparse.ArgumentParser):
    """Says what was probably meant, and shows a command's texts in the lines that they were written in.

    A command that is given another one after `--` has a default `without_dashes`: what to say where an argument is
    not known and there is no `--`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, formatter_class=argparse.RawDescriptionHelpFormatter)

    def parse_args(  # type: ignore[override]  # argparse has overloads for other kinds of namespaces
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        words = sys.argv[1:] if args is None else args
        found, unknown = self.parse_known_args(words, namespace)
        if unknown:
            hint = "" if "--" in words else getattr(found, "without_dashes", "")
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint and '. '}{hint}")
        return found

    def error(self, message: str) -> NoReturn:
        super().error(f"{message}{self._hint(message)}")

    def _hint(self, message: str) -> str:
        wrong = _NO_CHOICE.search(message)
        if wrong is not None:
            near = difflib.get_close_matches(wrong.group(1), re.findall(r"'([^']+)'", wrong.group(2)), n=1)
            return f"; did you mean {near[0]}?" if near else ""
        excluded = _EXCLUDED.search(message)
        if excluded is not None:
            options = excluded.group(1).split("/")
            for group in self._mutually_exclusive_groups:
                if any(option in action.option_strings for action in group._group_actions for option in options):
                    return f"; give one of {', '.join(_name(action) for action in group._group_actions)}"
        return ""


def _name(action: argparse.Action) -> str:
    return max(action.option_strings, key=len)
