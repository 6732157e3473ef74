"""Coverage-guided fuzzing of scripts, words and manifests: nothing but a Refusal may come of any text.

    python -m tests.fuzz.fuzz_arguments -max_total_time=60

What is rewritten must be read back as asked, and a second rewrite must change nothing.
"""

from __future__ import annotations

import sys

import atheris

from tests.fuzz import corpus_arguments

with atheris.instrument_imports(include=["kneekeeper"]):
    from kneekeeper.domain.arguments import (
        Refusal,
        Rewrite,
        VariableUse,
        fingerprint_arguments,
        read_engine_arguments,
        rewrite,
    )
    from kneekeeper.domain.manifests import Change, EditRefusedError, NotAManifestError, apply_changes, read_manifests

PIECES = (
    *(
        "vllm serve m ",
        "exec ",
        "python3 -m vllm.entrypoints.openai.api_server --model m ",
        "--max-num-seqs ",
        "=",
        "8",
    ),
    *("--max_num_batched_tokens=", "${N:-8}", '"$A"', "$A", "$((", "))", "'", '"', "\\\n", "\n", ";", "&&", "||", "|"),
    *("if ", "then ", "fi", "{ ", "}", "(", ")", "#", ">", "<", "$(", "`", "--chat-template ", "A=", "export ", " "),
)
ENV = {"A": "1 2", "N": "8"}


def script_of(data: atheris.FuzzedDataProvider) -> str:
    text = "vllm serve m " if data.ConsumeBool() else ""
    while data.remaining_bytes() and len(text) < 400:
        text += data.PickValueInList(list(PIECES)) if data.ConsumeBool() else data.ConsumeUnicodeNoSurrogates(4)
    return text


def rewritten(words: list[str], env: dict[str, str]) -> Rewrite | Refusal:
    return rewrite(words, None, env, max_num_seqs=64, max_num_batched_tokens=4096, variables=VariableUse.SET)


def fuzz_words(words: list[str]) -> None:
    fingerprint_arguments(words, None, ENV)
    result = rewritten(words, ENV)
    if isinstance(result, Refusal):
        return
    env = {**ENV, **result.env}
    arguments = read_engine_arguments(result.command, None, env)
    assert not isinstance(arguments, Refusal), arguments
    assert (arguments.max_num_seqs, arguments.max_num_batched_tokens) == (64, 4096)
    again = rewritten(result.command or [], env)
    assert isinstance(again, Rewrite), again
    assert (again.command, again.env) == (result.command, {})


def fuzz_manifest(text: str) -> None:
    try:
        file = read_manifests(f"apiVersion: v1\nkind: X\nargs: [--max-num-seqs=8]\nmore: {text}")
        after = apply_changes(file, file.objects[0], [Change(("args",), ["--max-num-seqs=64", "x"])])
    except (NotAManifestError, EditRefusedError):
        return
    assert read_manifests(after).objects[0].value["args"] == ["--max-num-seqs=64", "x"]
    assert after.endswith(text)


def one_input(content: bytes) -> None:
    data = atheris.FuzzedDataProvider(content)
    match data.ConsumeIntInRange(0, 2):
        case 0:
            fuzz_words(["bash", "-c", script_of(data), "name", "argument"])
        case 1:
            fuzz_words(["vllm", "serve", "m", *script_of(data).split(" ")])
        case _:
            fuzz_manifest(script_of(data))


if __name__ == "__main__":
    seeds = (bytes([kind]) * 40 for kind in range(3))
    atheris.Setup([*sys.argv, *corpus_arguments("fuzz_arguments", seeds, PIECES)], one_input)
    atheris.Fuzz()
