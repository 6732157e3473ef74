"""Tells a change of the two limits apart from a change of any other argument."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from kneekeeper.domain.arguments.config_file import scan_with_file
from kneekeeper.domain.arguments.flags import (
    ACCUMULATING_FLAGS,
    FLAGS,
    LIMIT_FLAGS,
    SECRET_FLAGS,
    Arity,
)
from kneekeeper.domain.arguments.program import ImageEntrypoint, find_launch
from kneekeeper.domain.arguments.refusal import RefusedError
from kneekeeper.domain.arguments.scan import Occurrence, Scan
from kneekeeper.domain.arguments.words import words_of
from kneekeeper.domain.redaction import redact

_NO_FILES: Mapping[str, str] = {}


def fingerprint_arguments(
    command: Sequence[str] | None,
    args: Sequence[str] | None,
    env: Mapping[str, str],
    *,
    entrypoint: ImageEntrypoint = ImageEntrypoint.UNCONFIRMED,
    leave_out: frozenset[str] = frozenset(),
    files: Mapping[str, str] = _NO_FILES,
) -> str:
    """A hash (64 hexadecimal digits) of every argument but the two limits and the flags in `leave_out`.

    The same for every spelling, form and order of flags that vLLM reads alike, and for any value of the
    limits, so that a `rewrite` never changes it. Keys and tokens take part only by whether they are given.
    Words that cannot be read as vLLM's are hashed as they stand, without secrets.
    """
    words = words_of(command, args, env)
    try:
        found = _canonical(scan_with_file(find_launch(words, entrypoint, env).arguments, files))
        canonical = [flag for flag in found if flag[0] not in leave_out]
    except RefusedError:
        canonical = [["unreadable", redact(" ".join(word.text for word in words))]]
    return hashlib.sha256(json.dumps(canonical).encode()).hexdigest()


def _canonical(found: Scan) -> list[list[str]]:
    """Flags by name with the values that count, the model among them, unknown ones in their order."""
    counted: dict[str, list[str]] = {"--model": [word.text for word in found.positionals]}
    unknown: list[list[str]] = []
    for occurrence in found.occurrences:
        name = occurrence.name
        if name in LIMIT_FLAGS:
            continue
        if not occurrence.known:
            behind = [*(value.text for value in occurrence.values), *(word.text for word in occurrence.loose)]
            unknown.append([name.replace("_", "-"), *behind])
            continue
        values = _values(occurrence)
        if name in ACCUMULATING_FLAGS:
            counted[name] = [*counted.get(name, []), *values]
        else:
            counted[name] = values
    return [*([name, *values] for name, values in sorted(counted.items())), *unknown]


def _values(occurrence: Occurrence) -> list[str]:
    if occurrence.name in SECRET_FLAGS:
        return ["given"]
    if FLAGS.get(occurrence.name) in (Arity.SWITCH, Arity.PLAIN_SWITCH):
        given = [value.text.lower() for value in occurrence.values] or ["true"]
        return ["not", *given] if occurrence.negated else given
    return [value.text for value in occurrence.values]
