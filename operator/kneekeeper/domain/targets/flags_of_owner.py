"""Engines whose arguments another controller puts together: a part of the command line is the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kneekeeper.api.model import Setting
from kneekeeper.domain.arguments import (
    Environment,
    Refusal,
    Rewrite,
    WrittenLimits,
    read_engine_arguments,
    read_written_limits,
    rewrite,
)
from kneekeeper.domain.arguments.config_file import words_of_mapping
from kneekeeper.domain.arguments.flags import LIMIT_FLAGS
from kneekeeper.domain.targets.model import Engine

_SERVE = ("vllm", "serve", "model")  # a controller fills in the model


def engine_of(part: str | None, words: Sequence[str], env: Mapping[str, str] | None = None) -> Engine | Refusal:
    """The engine that `vllm serve MODEL words…` is."""
    arguments = read_engine_arguments(_SERVE, list(words), env or {})
    limits = read_written_limits(_SERVE, list(words), env or {})
    if isinstance(arguments, Refusal):
        return arguments
    assert isinstance(limits, WrittenLimits)  # read with the same words above
    return Engine(part, arguments, limits)


def with_limits(
    users: Sequence[str],
    setting: Setting,
    *,
    before: Sequence[str] = (),
    elsewhere: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> list[str] | Refusal:
    """The user's words with the limits.

    `before` are the controller's words before them, for what they say of the engine. A flag of the limits in
    `elsewhere` is written in a field of its own, so that it is not appended to the words.
    """
    known = [word for word in before if not word.startswith(LIMIT_FLAGS)]
    fields = [f"{flag}={_value(flag, setting)}" for flag in elsewhere]
    result = rewrite(
        [*_SERVE, *known, *fields],
        list(users),
        env if env is not None else Environment({}),
        max_num_seqs=setting.max_num_seqs,
        max_num_batched_tokens=setting.max_num_batched_tokens,
    )
    if not isinstance(result, Rewrite):
        return result
    appended = (result.command or [])[len(_SERVE) + len(known) + len(fields) :]  # where there were no user's words
    return [*(result.args or []), *appended]


def _value(flag: str, setting: Setting) -> int:
    return setting.max_num_seqs if flag == LIMIT_FLAGS[0] else setting.max_num_batched_tokens


def words_of_settings(settings: Mapping[str, object]) -> list[str]:
    """Names and values, as a controller hands them to vLLM."""
    dashed = {name.replace("_", "-"): value for name, value in settings.items()}
    return [word.text for word in words_of_mapping(dashed)]
