"""New values for the two limits, written where the user wrote the old ones; all else byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kneekeeper.api.model import Setting
from kneekeeper.domain.arguments.editing import Texts, VariableUse, target_of
from kneekeeper.domain.arguments.flags import LIMIT_FLAGS, MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS
from kneekeeper.domain.arguments.numbers import parse_human_integer, parse_integer
from kneekeeper.domain.arguments.program import ImageEntrypoint, Launch, find_launch
from kneekeeper.domain.arguments.reading import read_engine_arguments
from kneekeeper.domain.arguments.refusal import Refusal, RefusalReason, RefusedError
from kneekeeper.domain.arguments.scan import Form, Occurrence, scan
from kneekeeper.domain.arguments.words import Word, WordList, words_of
from kneekeeper.domain.engines import limit_conflict

_NO_FILES: Mapping[str, str] = {}


@dataclass(frozen=True)
class Rewrite:
    """The container's new words. A list that was absent stays absent (None).

    `env` are the variables whose literal value in the container's `env` becomes another one, or is added.
    `silenced` are the variables that the words no longer name.
    """

    command: list[str] | None
    args: list[str] | None
    env: Mapping[str, str] = field(default_factory=dict)
    silenced: tuple[str, ...] = ()


def rewrite(
    command: Sequence[str] | None,
    args: Sequence[str] | None,
    env: Mapping[str, str],
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    entrypoint: ImageEntrypoint = ImageEntrypoint.UNCONFIRMED,
    served_max_model_len: int | None = None,
    files: Mapping[str, str] = _NO_FILES,
    variables: VariableUse = VariableUse.KEEP,
) -> Rewrite | Refusal:
    """The words that give vLLM the two limits and change nothing else.

    Every occurrence of a limit's flag gets the new number, in the spelling and form that it has; an
    abbreviation becomes the full name and `$(VAR)` the number. An absent flag is appended as `--flag=number`
    to `args`, or to `command` where there are no args, or behind the last word of vLLM's command in a script.
    A shell's `${VAR}` becomes the number too, unless `variables` allows to set VAR. Rewriting twice gives the
    same as once, and the result is read again before it is returned.
    `served_max_model_len` (tokens) is what /v1/models reported, if known.
    Returns a Refusal where the words are not understood or vLLM would not start with these limits.
    Raises pydantic.ValidationError for limits that no `Setting` can have.
    """
    arguments = read_engine_arguments(command, args, env, entrypoint=entrypoint, files=files)
    if isinstance(arguments, Refusal):
        return arguments
    setting = Setting(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
    conflict = limit_conflict(arguments, setting, served_max_model_len)
    if conflict is not None:
        piece = f"max_num_seqs={max_num_seqs}, max_num_batched_tokens={max_num_batched_tokens}"
        return Refusal(RefusalReason.LIMITS_REJECTED, piece, f"{piece} would not serve: {conflict}")
    try:
        return _rewrite(command, args, env, setting, entrypoint, variables)
    except RefusedError as refused:
        return refused.refusal


def _rewrite(
    command: Sequence[str] | None,
    args: Sequence[str] | None,
    env: Mapping[str, str],
    setting: Setting,
    entrypoint: ImageEntrypoint,
    variables: VariableUse,
) -> Rewrite:
    launch = find_launch(words_of(command, args, env), entrypoint, env)
    texts = Texts(command, args, env, variables)
    occurrences = scan(launch.arguments).occurrences
    appended = [
        *_set_limit(texts, occurrences, MAX_NUM_SEQS, setting.max_num_seqs, parse_integer),
        *_set_limit(texts, occurrences, MAX_NUM_BATCHED_TOKENS, setting.max_num_batched_tokens, parse_human_integer),
    ]
    texts.append(launch.end, appended)
    result = Rewrite(texts.list_of(WordList.COMMAND), texts.list_of(WordList.ARGS), texts.env, texts.silenced)
    after = find_launch(words_of(result.command, result.args, texts.whole_env()), entrypoint, texts.whole_env())
    _prove(launch, after, setting)
    return result


def _set_limit(
    texts: Texts, occurrences: Sequence[Occurrence], flag: str, number: int, parse: Callable[[str], int]
) -> list[str]:
    """The words to append: none where the flag is given."""
    mine = [occurrence for occurrence in occurrences if occurrence.name == flag]
    for occurrence in mine:
        _set_occurrence(texts, occurrence, number, parse)
    return [] if mine else [f"{flag}={number}"]


def _set_occurrence(texts: Texts, occurrence: Occurrence, number: int, parse: Callable[[str], int]) -> None:
    value = occurrence.values[0]
    key = _full_key(occurrence)
    if key != occurrence.key:
        texts.put(target_of(occurrence.word, 0, len(occurrence.key), texts), key)
    # 4K stays 4K where 4096 is wanted: nothing would change but the text.
    if parse(value.text) == number and not _is_reference(value.word, value.text):
        return
    start = len(occurrence.key) + 1 if occurrence.form is Form.INLINE else 0
    texts.put(target_of(value.word, start, len(value.word.text), texts), str(number))


def _is_reference(word: Word, value: str) -> bool:
    return any(glyph.reference is not None for glyph in word.glyphs[len(word.text) - len(value) :])


def _full_key(occurrence: Occurrence) -> str:
    """The flag as it is written, with an abbreviation written out in the same separators."""
    if occurrence.key.replace("_", "-") == occurrence.name:
        return occurrence.key
    separator = "_" if "_" in occurrence.key else "-"
    return "--" + occurrence.name[2:].replace("-", separator)


def _prove(before: Launch, after: Launch, setting: Setting) -> None:
    """Read again, vLLM gets the limits and every other word as before, and so do a script's other commands."""
    wanted = {MAX_NUM_SEQS: setting.max_num_seqs, MAX_NUM_BATCHED_TOKENS: setting.max_num_batched_tokens}
    found = {
        flag: {parse_human_integer(o.values[0].text) for o in scan(after.arguments).occurrences if o.name == flag}
        for flag in LIMIT_FLAGS
    }
    same = before.program is after.program and before.others == after.others
    if not same or found != {flag: {number} for flag, number in wanted.items()} or _rest(before) != _rest(after):
        raise RefusedError(
            RefusalReason.NOT_UNDERSTOOD,
            "",
            "The limits cannot be changed here without changing something else too",
            "Write --max-num-seqs and --max-num-batched-tokens once each as plain numbers.",
        )


def _rest(launch: Launch) -> list[str]:
    """All words but the limits and their values."""
    limits = [o for o in scan(launch.arguments).occurrences if o.name in LIMIT_FLAGS]
    dropped = {id(word) for o in limits for word in (o.word, *(value.word for value in o.values))}
    return [word.text for word in launch.arguments if id(word) not in dropped]
