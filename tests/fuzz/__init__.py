"""Fuzzing of what reads others' bytes, guided by coverage; each module is a target: `python -m tests.fuzz.NAME`."""

from __future__ import annotations

from collections.abc import Iterable

from e2e.realvllm.environment import cache_root


def corpus_arguments(target: str, seeds: Iterable[bytes], words: Iterable[str]) -> list[str]:
    """libFuzzer's arguments for a corpus that grows from run to run, and a dictionary of these words."""
    folder = cache_root() / "fuzz" / target
    corpus, dictionary = folder / "corpus", folder / "words"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    quoted = ("".join(c if c.isalnum() else f"\\x{ord(c):02x}" for c in word) for word in words)
    dictionary.write_text("".join(f'"{word}"\n' for word in quoted), encoding="ascii")
    return [f"-dict={dictionary}", str(corpus)]
