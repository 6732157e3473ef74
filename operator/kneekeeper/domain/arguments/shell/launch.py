"""`sh -c SCRIPT` among a container's words, and the command of the script that is the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kneekeeper.domain.arguments.environment import Environment
from kneekeeper.domain.arguments.refusal import RefusalReason, RefusedError
from kneekeeper.domain.arguments.shell.expansion import Field
from kneekeeper.domain.arguments.shell.interpreter import Call, calls_of
from kneekeeper.domain.arguments.shell.word_parser import Dialect
from kneekeeper.domain.arguments.words import Item, Span, Word
from kneekeeper.domain.arguments.wrappers import mentions_vllm, without_wrappers

_DIALECTS = {
    "sh": Dialect.POSIX,
    "dash": Dialect.POSIX,
    "ash": Dialect.POSIX,
    "bash": Dialect.BASH,
}
_OTHER_SHELLS = frozenset({"zsh", "ksh", "fish", "csh", "tcsh"})
_OPTIONS = re.compile(r"[-+][abefhiklmnuvxlBCEHP]+|--(?:login|noprofile|norc|posix)")
_OPTION_WITH_NAME = re.compile(r"[-+][abefhilmnuvxl]*o")  # -euo pipefail
_OPTIONS_AND_SCRIPT = re.compile(r"-[abefhilmnuvxl]*c[euxl]*")
_LIST_FORM = (
    "Write the container's command as a list: [vllm, serve] or [python3, -m, vllm.entrypoints.openai.api_server]."
)


@dataclass(frozen=True)
class ScriptCall:
    """The engine's command in a script.

    `words` begin with the program. An absent flag is written at `end`. `others` are the words of all other
    commands: a rewrite may not change them.
    """

    words: tuple[Word, ...]
    end: Span
    others: tuple[tuple[str, ...], ...]
    environment: Environment


def is_shell(program: str) -> bool:
    """Whether a program's name is that of a shell."""
    return program in _DIALECTS or program in _OTHER_SHELLS


def find_call(
    words: Sequence[Word], environment: Environment, is_engine: Callable[[Sequence[Word]], bool]
) -> ScriptCall:
    """The one command that `is_engine` knows in the script of `sh -c SCRIPT …`. Raises RefusedError."""
    script, dialect, arguments = _script(words)
    calls = calls_of(script, dialect, arguments, environment)
    found = [(call, command) for call in calls for command in [_command(call, script)] if is_engine(command)]
    suspects = [call for call in calls if call not in [c for c, _ in found] and mentions_vllm(call.fields)]
    if suspects:
        raise _refusal(suspects[0].written, "This may start vLLM in a way that is not followed")
    if not found:
        broken = next((call for call in calls if call.fields and call.fields[0].text.startswith("-")), None)
        unknown = next((call for call in calls if call.fields and call.fields[0].unresolved), None)
        if broken is not None or unknown is not None:
            raise _refusal((broken or unknown or calls[0]).written, "It is not certain which program this runs")
        raise RefusedError(
            RefusalReason.NOT_VLLM,
            " ".join(word.text for word in words[:2]),
            "No command of the shell script starts vLLM's API server",
            f"Name the engine's container. {_LIST_FORM}",
        )
    if len(found) > 1:
        raise _refusal(found[1][0].written, "The script starts vLLM at several places")
    call, command = found[0]
    _refuse_broken_lines(calls)
    last = script.glyphs[call.end - 1].span
    end = Span(last.place, last.end, last.end)
    others = tuple(tuple(field.text for field in other.fields) for other in calls if other is not call)
    return ScriptCall(_certain(call, command), end, others, call.environment)


def _script(words: Sequence[Word]) -> tuple[Word, Dialect, Sequence[Word]]:
    name = words[0].text.rpartition("/")[2]
    if name not in _DIALECTS:
        raise _refusal(name, "This shell's language is not understood")
    at = 1
    while at < len(words):
        text = words[at].text
        if _OPTION_WITH_NAME.fullmatch(text):
            at += 2
        elif _OPTIONS_AND_SCRIPT.fullmatch(text) and at + 1 < len(words):
            at += 1
            while at < len(words) and words[at].text == "--":
                at += 1
            if at < len(words):
                return words[at], _DIALECTS[name], words[at + 1 :]
        elif _OPTIONS.fullmatch(text):
            at += 1
        else:
            break
    shown = " ".join(word.text for word in words[: at + 1])
    raise RefusedError(
        RefusalReason.SCRIPT_FILE,
        shown,
        "The engine's arguments are in a file that the shell runs",
        f"Change them there. {_LIST_FORM}",
    )


def _command(call: Call, script: Word) -> tuple[Word, ...]:
    """The call's words without programs that only pass them on."""
    return tuple(_word(field, script) for field in without_wrappers(call.fields, in_a_script=True))


def _word(field: Field, script: Word) -> Word:
    return Word(_written(field, script), field.text, field.unresolved, script.source, script.index, field.glyphs)


def _written(field: Field, script: Word) -> str:
    """As it stands in the script, without the quotes at its ends."""
    place = Item(script.source, script.index)
    spans = [glyph.span for glyph in field.glyphs]
    if not spans or any(span.place != place for span in spans):
        return field.text
    return script.raw[spans[0].start : spans[-1].end]


def _certain(call: Call, command: tuple[Word, ...]) -> tuple[Word, ...]:
    for field in call.fields:
        if field.doubt is not None:
            raise RefusedError(
                RefusalReason.UNRESOLVED_VARIABLE,
                field.doubt,
                "It is not certain which words the shell makes of this part of vLLM's command",
                "Put it in double quotes where it is one word, set the variable by a literal value in env, "
                "or write the words out.",
            )
    return command


def _refuse_broken_lines(calls: Sequence[Call]) -> None:
    """A line that begins with a flag is the rest of a command that ended too early."""
    for call in calls:
        if call.fields and call.fields[0].text.startswith("-"):
            raise _refusal(call.written, "A line begins with a flag, so the command before it ended without it")


def _refusal(piece: str, problem: str) -> RefusedError:
    return RefusedError(RefusalReason.SHELL_COMMAND, piece, problem, _LIST_FORM)
