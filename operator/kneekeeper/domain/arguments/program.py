"""Whether a container runs vLLM, and which of its words are vLLM's arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.domain.arguments.environment import environment_of
from kneekeeper.domain.arguments.refusal import RefusalReason, RefusedError
from kneekeeper.domain.arguments.shell.launch import find_call, is_shell
from kneekeeper.domain.arguments.words import Span, Word, WordList
from kneekeeper.domain.arguments.wrappers import mentions_vllm, without_wrappers


class ImageEntrypoint(StrEnum):
    """What is known of the program that the image starts when the container has no `command`."""

    VLLM_SERVER = "VLLMServer"  # certainly vLLM's API server
    UNCONFIRMED = "Unconfirmed"  # not known; arguments alone are then refused


class Program(StrEnum):
    """How vLLM's API server is started; the forms differ in where the model stands."""

    SERVE = "serve"  # vllm serve MODEL …
    MODULE = "module"  # python -m vllm.entrypoints.openai.api_server --model MODEL …
    IMAGE_ENTRYPOINT = "image entrypoint"  # one of the two, by the image's version


@dataclass(frozen=True)
class Launch:
    """A recognised program and its arguments.

    `env` is what the program's own environment holds, as far as it is known. An absent flag is written at the
    end of the list `end`, or into a script at the place `end`. `others` are the words of a script's other commands.
    """

    program: Program
    arguments: tuple[Word, ...]
    env: Mapping[str, str]
    end: WordList | Span
    others: tuple[tuple[str, ...], ...] = ()


_OFFICIAL_REPOSITORIES = frozenset({"vllm-openai", "vllm-openai-rocm", "vllm-openai-cpu"})
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_PYTHON_SWITCHES = frozenset({"-u", "-B", "-E", "-I", "-O", "-OO", "-s", "-S"})
# The second is the simulated engine, which also has the form `python -m kneekeeper.engine serve MODEL`.
_SERVER_MODULES = frozenset({"vllm.entrypoints.openai.api_server", "kneekeeper.engine"})
_SERVE_MODULES = frozenset({"kneekeeper.engine", "vllm.entrypoints.cli.main"})
_NAME_THE_PROGRAM = (
    "Write the container's command as [vllm, serve] or [python3, -m, vllm.entrypoints.openai.api_server]."
)


def entrypoint_of_image(image: str) -> ImageEntrypoint:
    """What the name of an image tells: vLLM publishes its server as `vllm-openai` (and `-rocm`, `-cpu`).

    A mirror in another registry keeps that name; any other name tells nothing.
    """
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return ImageEntrypoint.VLLM_SERVER if repository in _OFFICIAL_REPOSITORIES else ImageEntrypoint.UNCONFIRMED


def find_launch(words: Sequence[Word], entrypoint: ImageEntrypoint, env: Mapping[str, str]) -> Launch:
    """The program that `words` start. Raises RefusedError where it is not vLLM or not certain."""
    try:
        return _found_launch(words, entrypoint, env)
    except RefusedError as error:
        if error.refusal.reason is RefusalReason.NOT_VLLM and mentions_vllm(words):
            written = " ".join(word.text for word in words)
            problem = "This may start vLLM in a way that is not followed"
            raise RefusedError(
                RefusalReason.NOT_UNDERSTOOD, written, problem, _NAME_THE_PROGRAM, may_start_vllm=True
            ) from error
        raise


def _found_launch(words: Sequence[Word], entrypoint: ImageEntrypoint, env: Mapping[str, str]) -> Launch:
    if not words:
        raise RefusedError(
            RefusalReason.ENTRYPOINT_UNKNOWN,
            "",
            "The container has neither command nor args, so the image alone decides what the engine receives",
            _NAME_THE_PROGRAM,
        )
    bare = len(words)
    words = without_wrappers(words, in_a_script=False)
    wrapped = len(words) < bare
    if not words or (wrapped and words[0].text.startswith("-")):
        raise RefusedError(
            RefusalReason.NOT_VLLM,
            words[0].text if words else "",
            "It is not certain which program runs",
            _NAME_THE_PROGRAM,
        )
    first = words[0]
    if is_shell(_name(first)) and not first.unresolved:
        found = find_call(words, environment_of(env), _is_engine)
        program, arguments = _launch(found.words)
        return Launch(program, arguments, found.environment, found.end, found.others)
    end = words[-1].source
    if first.source is WordList.ARGS and first.text.startswith("-"):
        program, arguments = _image_launch(words, entrypoint)
    elif first.unresolved:
        raise RefusedError(RefusalReason.UNRESOLVED_VARIABLE, first.raw, "The program is a variable", _NAME_THE_PROGRAM)
    elif _runs_a_program(first):
        program, arguments = _launch(words)
    elif first.source is WordList.ARGS and not wrapped:
        program, arguments = _image_launch(words, entrypoint)
    else:
        raise RefusedError(
            RefusalReason.NOT_VLLM,
            first.text,
            "The container's program is not vLLM",
            f"Name the engine's container in spec.targetRef.container. {_NAME_THE_PROGRAM}",
        )
    return Launch(program, arguments, env, end)


def _name(word: Word) -> str:
    return word.text.rpartition("/")[2]


def _runs_a_program(first: Word) -> bool:
    return _name(first) == "vllm" or _PYTHON.fullmatch(_name(first)) is not None


def _is_engine(words: Sequence[Word]) -> bool:
    try:
        return bool(words) and _runs_a_program(words[0]) and bool(_launch(words))
    except RefusedError:
        return False


def _launch(words: Sequence[Word]) -> tuple[Program, tuple[Word, ...]]:
    return _vllm_launch(words) if _name(words[0]) == "vllm" else _python_launch(words)


def _image_launch(words: Sequence[Word], entrypoint: ImageEntrypoint) -> tuple[Program, tuple[Word, ...]]:
    if entrypoint is not ImageEntrypoint.VLLM_SERVER:
        raise _unknown_entrypoint(words[0])
    return Program.IMAGE_ENTRYPOINT, tuple(words)


def _unknown_entrypoint(first: Word) -> RefusedError:
    return RefusedError(
        RefusalReason.ENTRYPOINT_UNKNOWN,
        first.text,
        "There is no command, and the image is not known to start vLLM; its args begin with",
        _NAME_THE_PROGRAM,
    )


def _vllm_launch(words: Sequence[Word]) -> tuple[Program, tuple[Word, ...]]:
    if len(words) < 2 or words[1].text != "serve":
        raise RefusedError(
            RefusalReason.NOT_VLLM,
            " ".join(word.text for word in words[:2]),
            "Only `vllm serve` starts an API server",
            _NAME_THE_PROGRAM,
        )
    return Program.SERVE, tuple(words[2:])


def _python_launch(words: Sequence[Word]) -> tuple[Program, tuple[Word, ...]]:
    at = 1
    while at < len(words) and words[at].text in _PYTHON_SWITCHES:
        at += 1
    module = words[at + 1].text if at + 1 < len(words) and words[at].text == "-m" else ""
    arguments = tuple(words[at + 2 :])
    if module in _SERVE_MODULES and arguments and arguments[0].text == "serve":
        return Program.SERVE, arguments[1:]
    if module in _SERVER_MODULES:
        return Program.MODULE, arguments
    raise RefusedError(
        RefusalReason.NOT_VLLM,
        " ".join(word.text for word in words[: at + 2]),
        "Python does not run vLLM's API server by its module",
        _NAME_THE_PROGRAM,
    )
