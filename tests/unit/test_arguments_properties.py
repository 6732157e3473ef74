"""Properties of reading and rewriting, with Python's own argparse as the judge of what vLLM would read."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from kneekeeper.domain.arguments import (
    EngineArguments,
    Refusal,
    Rewrite,
    fingerprint_arguments,
    read_engine_arguments,
    rewrite,
)
from kneekeeper.domain.arguments.flags import ALIASES, FLAGS, LIMIT_FLAGS, Arity
from kneekeeper.domain.arguments.numbers import parse_human_integer

USAGE = Path(__file__).parent / "data" / "startup_logs" / "unknown-argument.txt"

# They end the reading, or their values are constrained.
SPECIAL = {"--config", "--headless", "--grpc", "--uds", "--runner", "--convert", "--task", "--model"}
INTERPRETED = {
    "--max-num-active-seqs",
    "--max-num-scheduled-tokens",
    "--max-model-len",
    "--port",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--stream-interval",
    "--speculative-config",
    "--spec-method",
    "--spec-model",
    "--spec-tokens",
    "--kv-transfer-config",
    "--enable-chunked-prefill",
    "--disable-chunked-mm-input",
}
OTHER_FLAGS = sorted(FLAGS.keys() - SPECIAL - INTERPRETED - set(LIMIT_FLAGS))

plain_value = st.text(alphabet="abcxyz0189/_.:{}[]\",'@%", min_size=1, max_size=8)
program = st.sampled_from(
    [
        ("vllm", "serve", "org/model"),
        ("/usr/local/bin/vllm", "serve", "org/model"),
        ("vllm", "serve", "--model", "org/model"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model=org/model"),
        ("/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/model"),
        ("python", "-u", "-m", "kneekeeper.engine", "--model", "org/model"),
    ]
)


@st.composite
def limit_spelling(draw: st.DrawFn, flag: str) -> str:
    """The flag with any mixture of `-` and `_`, sometimes as an abbreviation that only it can be."""
    shortest = {"--max-num-seqs": len("--max-num-se"), "--max-num-batched-tokens": len("--max-num-b")}[flag]
    length = draw(st.one_of(st.just(len(flag)), st.integers(shortest, len(flag))))
    name = flag[2:length]
    return "--" + "".join(draw(st.sampled_from("-_")) if letter == "-" else letter for letter in name)


@st.composite
def limit_words(draw: st.DrawFn) -> list[str]:
    flag = draw(st.sampled_from(LIMIT_FLAGS))
    plain = draw(st.integers(1, 999_999))
    texts = [str(plain), f"{plain:_}", f" {plain}"]
    if flag == "--max-num-batched-tokens":
        texts += [f"{plain}k", f"{plain % 64 + 1}K", f"{plain % 100 + 0.5}k"]
    text, key = draw(st.sampled_from(texts)), draw(limit_spelling(flag))
    return draw(st.sampled_from([[f"{key}={text}"], [key, text]]))


@st.composite
def other_words(draw: st.DrawFn) -> list[str]:
    flag = draw(st.sampled_from(OTHER_FLAGS))
    key = draw(st.sampled_from([flag, "--" + flag[2:].replace("-", "_")]))
    match FLAGS[flag]:
        case Arity.SWITCH:
            return [draw(st.sampled_from([key, "--no-" + key[2:]]))]
        case Arity.PLAIN_SWITCH:
            return [key]
        case Arity.MANY:
            return [key, *draw(st.lists(plain_value, min_size=1, max_size=3))]
        case _:
            value = draw(plain_value)
            return draw(st.sampled_from([[f"{key}={value}"], [key, value]]))


@dataclass(frozen=True)
class CommandLine:
    command: list[str] | None
    args: list[str] | None

    @property
    def words(self) -> list[str]:
        return [*(self.command or []), *(self.args or [])]

    @property
    def arguments(self) -> list[str]:
        """Without the program."""
        words = self.words
        return words[2:] if words[1] == "serve" else words[words.index("-m") + 2 :]


@st.composite
def command_lines(draw: st.DrawFn) -> CommandLine:
    pieces = draw(st.lists(st.one_of(limit_words(), other_words()), max_size=6))
    words = [*draw(program), *(word for piece in pieces for word in piece)]
    cut = draw(st.integers(0, len(words)))
    command, args = words[:cut] or None, words[cut:] or None
    return CommandLine(command, args)


@cache
def oracle_parser() -> argparse.ArgumentParser:
    """Every flag of the table by its arity, the limits with vLLM's number types."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("model_tag", nargs="?")
    types: dict[str, Callable[[str], int | str]] = {
        "--max-num-seqs": int,
        "--max-num-batched-tokens": parse_human_integer,
    }
    short = {flag: [alias for alias, full in ALIASES.items() if full == flag] for flag in FLAGS}
    for flag, arity in FLAGS.items():
        names = [flag, *short[flag]]
        match arity:
            case Arity.SWITCH:
                parser.add_argument(*names, action=argparse.BooleanOptionalAction)
            case Arity.PLAIN_SWITCH:
                parser.add_argument(*names, action="store_true")
            case Arity.MANY:
                parser.add_argument(*names, nargs="+")
            case Arity.OPTIONAL:
                parser.add_argument(*names, nargs="?")
            case Arity.ONE:
                parser.add_argument(*names, type=types.get(flag, str))
    return parser


def oracle(arguments: list[str]) -> argparse.Namespace:
    """What argparse makes of the words, after vLLM's own exchange of `_` for `-` in names."""
    dashed = [re.sub(r"^--[^=]*", lambda found: found.group().replace("_", "-"), word) for word in arguments]
    return oracle_parser().parse_args(dashed)


settings = st.tuples(st.integers(1, 512), st.integers(512, 1 << 16))


def rewritten(line: CommandLine, seqs: int, tokens: int) -> CommandLine:
    result = rewrite(line.command, line.args, {}, max_num_seqs=seqs, max_num_batched_tokens=tokens)
    assert isinstance(result, Rewrite), result
    return CommandLine(result.command, result.args)


def read(line: CommandLine) -> EngineArguments:
    result = read_engine_arguments(line.command, line.args, {})
    assert isinstance(result, EngineArguments), result
    return result


@given(command_lines())
def test_both_limits_and_the_model_are_read_as_argparse_reads_them(line):
    judged = oracle(line.arguments)
    arguments = read(line)
    assert arguments.max_num_seqs == judged.max_num_seqs
    assert arguments.max_num_batched_tokens == judged.max_num_batched_tokens
    assert arguments.model == (judged.model_tag or judged.model)
    assert arguments.lora_enabled is bool(judged.enable_lora)
    assert arguments.log_stats is not judged.disable_log_stats


@given(command_lines(), settings)
def test_argparse_and_the_reader_find_the_new_values_after_a_rewrite(line, setting):
    after = rewritten(line, *setting)
    judged = oracle(after.arguments)
    assert (judged.max_num_seqs, judged.max_num_batched_tokens) == setting
    arguments = read(after)
    assert (arguments.max_num_seqs, arguments.max_num_batched_tokens) == setting


@given(command_lines(), settings)
def test_rewriting_twice_is_rewriting_once(line, setting):
    once = rewritten(line, *setting)
    assert rewritten(once, *setting) == once


@given(command_lines(), settings)
def test_argparse_sees_no_other_difference_after_a_rewrite(line, setting):
    before, after = vars(oracle(line.arguments)), vars(oracle(rewritten(line, *setting).arguments))
    for limit in ("max_num_seqs", "max_num_batched_tokens"):
        del before[limit], after[limit]
    assert before == after


@given(command_lines(), settings)
def test_other_words_stay_byte_for_byte_in_their_place(line, setting):
    after = rewritten(line, *setting)
    assert (after.command is None, after.args is None) == (line.command is None, line.args is None)
    kept: list[str] = []
    for old, new in ((line.command or [], after.command or []), (line.args or [], after.args or [])):
        assert all(re.fullmatch(r"--max-num-(seqs|batched-tokens)=\d+", word) for word in new[len(old) :])
        kept += new[: len(old)]
    assert len(kept) == len(line.words)
    for at, (old_word, new_word) in enumerate(zip(line.words, kept, strict=True)):
        if old_word != new_word:
            flag = old_word if old_word.startswith("--") else line.words[at - 1]
            assert flag.replace("_", "-").startswith("--max-num-")


@given(command_lines(), settings)
def test_the_fingerprint_is_blind_for_the_limits(line, setting):
    after = rewritten(line, *setting)
    assert fingerprint_arguments(line.command, line.args, {}) == fingerprint_arguments(after.command, after.args, {})


@given(command_lines(), other_words())
def test_the_fingerprint_sees_every_other_argument_that_argparse_sees(line, extra):
    more = replace(line, args=[*(line.args or []), *extra])
    before, after = vars(oracle(line.arguments)), vars(oracle(more.arguments))
    for secret in ("api_key", "hf_token"):
        assume(before[secret] == after[secret])
    assume(before != after)
    # argparse tells "not given" from "given as false"; so does the fingerprint.
    assert fingerprint_arguments(line.command, line.args, {}) != fingerprint_arguments(more.command, more.args, {})


@given(st.lists(st.text(alphabet='abc-_=$(){}"\\ .', max_size=8), max_size=6), settings)
def test_any_words_at_all_are_read_or_refused_and_never_crash(words, setting):
    line = ["vllm", "serve", *words]
    reading = read_engine_arguments(line, None, {})
    result = rewrite(line, None, {}, max_num_seqs=setting[0], max_num_batched_tokens=setting[1])
    assert isinstance(reading, EngineArguments | Refusal)
    assert isinstance(result, Rewrite | Refusal)
    assert len(fingerprint_arguments(line, None, {})) == 64


def test_the_table_of_flags_agrees_with_the_usage_that_a_real_vllm_prints():
    usage = USAGE.read_text().partition("error: ")[0]
    options = re.findall(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", usage)
    checked = 0
    for option in (" ".join(text.split()) for text in options):
        key, _, rest = option.partition(" ")
        if not key.startswith("-"):
            continue
        assert FLAGS[ALIASES.get(key, key)] is arity_in_usage(rest), option
        checked += 1
    assert checked >= 100


def arity_in_usage(rest: str) -> Arity:
    if "| --no-" in rest:
        return Arity.SWITCH
    if not rest:
        return Arity.PLAIN_SWITCH
    if rest.startswith("["):
        return Arity.OPTIONAL
    return Arity.MANY if rest.endswith("...]") else Arity.ONE
