"""New values for the two limits, written where the user wrote the old ones; all else byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.domain.arguments.flags import MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS
from kneekeeper.domain.arguments.numbers import parse_human_integer, parse_integer
from kneekeeper.domain.arguments.program import ImageEntrypoint, find_launch
from kneekeeper.domain.arguments.reading import read_engine_arguments
from kneekeeper.domain.arguments.refusal import Refusal, RefusalReason
from kneekeeper.domain.arguments.scan import Form, Occurrence, scan
from kneekeeper.domain.arguments.words import Word, WordList, words_of
from kneekeeper.domain.engines import limit_conflict


@dataclass(frozen=True)
class Rewrite:
    """The container's new words. A list that was absent stays absent (None)."""

    command: list[str] | None
    args: list[str] | None


def rewrite(
    command: Sequence[str] | None,
    args: Sequence[str] | None,
    env: Mapping[str, str],
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    entrypoint: ImageEntrypoint = ImageEntrypoint.UNCONFIRMED,
    served_max_model_len: int | None = None,
) -> Rewrite | Refusal:
    """The words that give vLLM the two limits and change nothing else.

    Every occurrence of a limit's flag gets the new number, in the spelling and form that it has; an
    abbreviation becomes the full name and `$(VAR)` the number. An absent flag is appended as `--flag=number`
    to `args`, or to `command` where there are no args. Rewriting twice gives the same as once.
    `served_max_model_len` (tokens) is what /v1/models reported, if known.
    Returns a Refusal where the words are not understood or vLLM would not start with these limits.
    Raises pydantic.ValidationError for limits that no `Setting` can have.
    """
    arguments = read_engine_arguments(command, args, env, entrypoint=entrypoint)
    if isinstance(arguments, Refusal):
        return arguments
    setting = Setting(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
    conflict = limit_conflict(arguments, setting, served_max_model_len)
    if conflict is not None:
        piece = f"max_num_seqs={max_num_seqs}, max_num_batched_tokens={max_num_batched_tokens}"
        return Refusal(RefusalReason.LIMITS_REJECTED, piece, f"{piece} would not serve: {conflict}")
    launch = find_launch(words_of(command, args, env), entrypoint)
    edit = _Edit(command, args)
    occurrences = scan(launch.arguments).occurrences
    edit.set_limit(occurrences, MAX_NUM_SEQS, max_num_seqs, parse_integer)
    edit.set_limit(occurrences, MAX_NUM_BATCHED_TOKENS, max_num_batched_tokens, parse_human_integer)
    return edit.result()


class _Edit:
    """The two lists while they are changed."""

    def __init__(self, command: Sequence[str] | None, args: Sequence[str] | None) -> None:
        self._lists = {
            WordList.COMMAND: None if command is None else list(command),
            WordList.ARGS: None if args is None else list(args),
        }

    def result(self) -> Rewrite:
        return Rewrite(self._lists[WordList.COMMAND], self._lists[WordList.ARGS])

    def set_limit(self, occurrences: Sequence[Occurrence], flag: str, number: int, parse: Callable[[str], int]) -> None:
        mine = [occurrence for occurrence in occurrences if occurrence.name == flag]
        if not mine:
            items = self._lists[WordList.ARGS] or self._lists[WordList.COMMAND]
            assert items  # a container without words was refused
            items.append(f"{flag}={number}")
            return
        for occurrence in mine:
            self._set_occurrence(occurrence, number, parse)

    def _set_occurrence(self, occurrence: Occurrence, number: int, parse: Callable[[str], int]) -> None:
        value = occurrence.values[0]
        key = _full_key(occurrence)
        # 4K stays 4K where 4096 is wanted: nothing would change but the text.
        stays = "$" not in value.word.raw and parse(value.text) == number
        spelled = value.text if stays else str(number)
        if occurrence.form is Form.INLINE:
            self._put(occurrence.word, f"{key}={spelled}")
            return
        if key != occurrence.key:
            self._put(occurrence.word, key)
        self._put(value.word, spelled)

    def _put(self, word: Word, text: str) -> None:
        items = self._lists[word.source]
        assert items is not None  # the word came from this list
        items[word.index] = text


def _full_key(occurrence: Occurrence) -> str:
    """The flag as it is written, with an abbreviation written out in the same separators."""
    if occurrence.key.replace("_", "-") == occurrence.name:
        return occurrence.key
    separator = "_" if "_" in occurrence.key else "-"
    return "--" + occurrence.name[2:].replace("-", separator)
