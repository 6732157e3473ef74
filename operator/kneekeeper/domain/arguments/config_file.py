"""The file behind `--config`, as vLLM turns it into arguments.

Source: vLLM 0.32, utils/argparse_utils.py, `load_config_file` and `_pull_args_from_config`: each key is a flag
with its dashes or underscores, the file's arguments stand before those of the command line, which therefore
wins. Only the two words `--config FILE` are followed: vLLM ignores `--config=FILE` and abbreviations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from kneekeeper.domain.arguments.flags import NEGATIONS
from kneekeeper.domain.arguments.refusal import RefusalReason, RefusedError
from kneekeeper.domain.arguments.scan import Form, Occurrence, Scan, scan
from kneekeeper.domain.arguments.words import Word, WordList


def words_of_mapping(settings: Mapping[str, Any]) -> tuple[Word, ...]:
    """The arguments that `settings` (names with dashes or underscores) stand for. Raises RefusedError."""
    return tuple(
        Word(text, text, (), WordList.ARGS, -1, ()) for key, value in settings.items() for text in _texts(key, value)
    )


def path_of_config(arguments: Sequence[Occurrence]) -> str | None:
    """The file that `arguments` name, if they name one. Raises RefusedError."""
    named = [o for o in arguments if o.name == "--config" and o.key == "--config" and o.form is Form.SEPARATE]
    if not named:
        return None
    path = named[0].values[0].text
    if len(named) > 1 or named[0].values[0].unresolved:
        raise _refusal(path, "vLLM reads one config file, whose path must be written out", "Name one file.")
    return path


def words_of_config(arguments: Sequence[Occurrence], files: Mapping[str, str]) -> tuple[Word, ...]:
    """The arguments that stand in the file that `arguments` name. Raises RefusedError.

    `files` are the texts of the container's files that are at hand, by path.
    """
    path = path_of_config(arguments)
    if path is None:
        return ()
    if path not in files:
        raise _refusal(
            path,
            "Arguments also come from a file that is not at hand",
            "Mount it from a ConfigMap that can be read, or write them into the container's args.",
        )
    try:
        settings = yaml.safe_load(files[path])
    except yaml.YAMLError:
        settings = None
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise _refusal(path, "This config file is no YAML mapping", "Correct the file.")
    return words_of_mapping(settings)


def scan_with_file(arguments: Sequence[Word], files: Mapping[str, str]) -> Scan:
    """All arguments, the config file's before those of the command line. Raises RefusedError."""
    given = scan(arguments)
    words = words_of_config(given.occurrences, files)
    if not words:
        return given
    in_file = scan(words)
    # A model that stands as a word of its own beats that of the file.
    kept = [o for o in in_file.occurrences if not (o.name == "--model" and given.positionals)]
    return Scan((*kept, *given.occurrences), (*given.positionals, *in_file.positionals))


def _refusal(path: str, problem: str, next_step: str) -> RefusedError:
    return RefusedError(RefusalReason.CONFIG_FILE, path, problem, next_step)


def _texts(key: str, value: Any) -> list[str]:
    flag = f"--{key}"
    match value:
        case True:
            return [flag]
        case False:
            return [f"--no-{key}"] if f"--no-{key}" in NEGATIONS else []
        case list():
            return [flag, *(str(item) for item in value)] if value else []
        case dict():
            return [flag, json.dumps(value)]
        case _:
            return [flag, str(value)]
