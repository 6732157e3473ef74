"""Fuzzing of what reads others' bytes, guided by coverage; each module is a target: `python -m tests.fuzz.NAME`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from e2e.realvllm.environment import cache_root

KEPT = Path(__file__).parent / "corpus"
"""What earlier searches found worth keeping, a folder for each target; `make keep-corpora` adds to it."""


def corpus_arguments(target: str, seeds: Iterable[bytes], words: Iterable[str]) -> list[str]:
    """libFuzzer's arguments: a corpus that grows from run to run, the one that is kept, a dictionary of these words."""
    folder = cache_root() / "fuzz" / target
    corpus, dictionary = folder / "corpus", folder / "words"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    quoted = ("".join(c if c.isalnum() else f"\\x{ord(c):02x}" for c in word) for word in words)
    dictionary.write_text("".join(f'"{word}"\n' for word in quoted), encoding="ascii")
    kept = KEPT / target
    return [f"-dict={dictionary}", str(corpus), *([str(kept)] if kept.is_dir() else [])]
