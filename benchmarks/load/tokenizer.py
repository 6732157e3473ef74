"""A tokenizer for clients that insist on one: a word is a token, so text and token ids translate exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_WORDS = 4096
_UNKNOWN = "<unk>"


def prompt(number: int, tokens: int) -> str:
    """A text of so many tokens, another one for each number."""
    return " ".join(f"w{1 + (number * 31 + at * at) % (_WORDS - 1):04d}" for at in range(tokens))


def write(folder: Path) -> Path:
    """Write the files of a Hugging Face tokenizer and return the folder."""
    folder.mkdir(parents=True)
    vocabulary = {_UNKNOWN: 0} | {f"w{number:04d}": number for number in range(1, _WORDS)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": _UNKNOWN},
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": _UNKNOWN, "model_max_length": 4096}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": _WORDS}
    for name, content in (("tokenizer", tokenizer), ("tokenizer_config", settings), ("config", config)):
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="ascii")
    return folder


def write_into_hub_cache(home: Path) -> str:
    """Write it as if it had been downloaded to that home directory, and return the name under which it is found.

    For clients that take no folder.
    """
    owner, name, revision = "benchmark", "words", "0" * 40
    repository = home / ".cache" / "huggingface" / "hub" / f"models--{owner}--{name}"
    write(repository / "snapshots" / revision)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision, encoding="ascii")
    return f"{owner}/{name}"
