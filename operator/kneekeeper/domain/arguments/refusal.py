"""Why arguments were not read or not changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kneekeeper.domain.redaction import redact

MAX_PIECE_CHARACTERS = 80  # enough to find the place; a script or a JSON value is not repeated in a status


class RefusalReason(StrEnum):
    """Reasons as they stand in conditions."""

    NOT_VLLM = "NotVLLM"
    ENTRYPOINT_UNKNOWN = "EntrypointUnknown"
    SHELL_COMMAND = "ShellCommand"
    SCRIPT_FILE = "ScriptFile"
    CONFIG_FILE = "ConfigFile"
    UNRESOLVED_VARIABLE = "UnresolvedVariable"
    AMBIGUOUS_FLAG = "AmbiguousFlag"
    MISSING_VALUE = "MissingArgumentValue"
    INVALID_VALUE = "InvalidArgumentValue"
    NOT_UNDERSTOOD = "ArgumentNotUnderstood"
    MODEL_UNKNOWN = "ModelUnknown"
    POOLING_MODEL = "PoolingModel"
    NO_HTTP_SERVER = "NoHTTPServer"
    LIMITS_REJECTED = "LimitsRejected"


@dataclass(frozen=True)
class Refusal:
    """Nothing was guessed and nothing is changed.

    `piece` is the word that was not understood (shortened, without secrets); `message` is a whole sentence
    with the next step, fit for a condition. `may_start_vllm`: another program does, in a way that is not followed.
    """

    reason: RefusalReason
    piece: str
    message: str
    may_start_vllm: bool = False


class RefusedError(Exception):
    """Carries a `Refusal` up to the public functions of this package, which return it."""

    def __init__(
        self, reason: RefusalReason, piece: str, problem: str, next_step: str, *, may_start_vllm: bool = False
    ) -> None:
        """`piece` may be a raw word: it is redacted and shortened here."""
        shown = shorten(piece)
        message = f"{problem}: {shown!r}. {next_step}" if shown else f"{problem}. {next_step}"
        self.refusal = Refusal(reason, shown, message, may_start_vllm)
        super().__init__(message)


def shorten(piece: str) -> str:
    """One line of at most `MAX_PIECE_CHARACTERS` characters, without secrets."""
    line = " ".join(redact(piece).split())
    return line if len(line) <= MAX_PIECE_CHARACTERS else line[: MAX_PIECE_CHARACTERS - 1] + "…"
