"""Generated scripts: whatever is understood must be what a real shell does, before and after a rewrite."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kneekeeper.domain.arguments import Refusal, Rewrite, VariableUse, rewrite
from kneekeeper.domain.arguments.program import ImageEntrypoint, find_launch
from kneekeeper.domain.arguments.refusal import RefusedError
from kneekeeper.domain.arguments.words import words_of
from tests.contract.engine_stub import Stubs
from tests.contract.test_argument_shapes import values_in, without_limits

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

ENV = {"A": "one", "B": "two words", "C": "", "D": "--seed 7", "E": "a*b"}

literal = st.text(alphabet="ab-=_./:", min_size=1, max_size=4)
inside_quotes = st.text(alphabet="ab \"'$\\`*?[{},#;&|\n~=", max_size=6)
variable = st.sampled_from(
    ["$A", "${A}", '"$B"', "$B", "$C", '"$C"', "$D", "${X:-d}", '"${X:-d e}"', "${X:-d e}", "${A:+y}", "${X:+y}", "$E"]
)
other = st.sampled_from(["$((1 + 2))", '"$((A))"', "$1", '"$@"', "\\ ", "\\$A", "~", "$", "{", "}", "a#b", "''", '""'])


def single(text: str) -> str:
    return "'" + text.replace("'", "") + "'"


def double(text: str) -> str:
    for char in '\\"$`':
        text = text.replace(char, "\\" + char)
    return f'"{text}"'


piece = st.one_of(literal, inside_quotes.map(single), inside_quotes.map(double), variable, other)
word = st.lists(piece, min_size=1, max_size=3).map("".join)
limit = st.one_of(
    st.sampled_from(["--max-num-seqs 8", "--max_num_seqs=8", '--max-num-seqs "8"', "'--max-num-seqs'=8"]),
    st.sampled_from(["--max-num-seqs ${N:-8}", "--max-num-batched-tokens 8k", '"--max-num-batched-tokens=$T"']),
)
flag = st.one_of(
    word.map(lambda text: f"--chat-template {text}"), word.map(lambda text: f"--chat-template={text}"), limit
)
before = st.lists(
    st.sampled_from(
        [
            "export X=1",
            "A=3",
            "A=$B",
            "T=64",
            "true && X=z",
            "false || true",
            "(A=9)",
            "if true; then A=4; fi",
            ":",
            "C+=x",
        ]
    ),
    max_size=3,
)
separator = st.sampled_from(["\n", "; ", " && ", "  # a comment with 'quote\n", " \\\n && "])
glue = st.sampled_from([" ", "  ", " \\\n  ", "\t"])


@st.composite
def scripts(draw: st.DrawFn) -> str:
    setup = "".join(step + draw(separator) for step in draw(before))
    flags = draw(st.lists(flag, max_size=3))
    command = draw(st.sampled_from(["", "exec "])) + "vllm serve m" + "".join(draw(glue) + text for text in flags)
    return setup + command + draw(st.sampled_from(["", "\n", " # end", " > log", " || true"]))


@pytest.fixture(scope="module")
def stubs():
    with tempfile.TemporaryDirectory() as folder:
        yield Stubs(Path(folder))


def understood(script: str, env: dict[str, str]) -> list[str] | None:
    """The words that are read, or None where the script is refused or a word is not known."""
    words = words_of(["bash", "-c", script, "x", "arg"], None, env)
    try:
        launch = find_launch(words, ImageEntrypoint.UNCONFIRMED, env)
    except RefusedError:
        return None
    return None if any(word.unresolved for word in launch.arguments) else [word.text for word in launch.arguments]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(scripts())
def test_the_words_that_are_read_are_those_that_bash_gives_to_vllm(stubs, script):
    read = understood(script, ENV)
    assume(read is not None)
    received = stubs.received(["bash", "-c", script, "x", "arg"], None, ENV)
    assert received[:2] == ["vllm", "serve"]
    assert received[2:] == read


def rewritten(words: list[str] | None, env: dict[str, str]) -> Rewrite | Refusal:
    return rewrite(words, None, env, max_num_seqs=64, max_num_batched_tokens=4096, variables=VariableUse.SET)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(scripts())
def test_a_rewritten_script_gives_vllm_the_limits_in_bash(stubs, script):
    words = ["bash", "-c", script, "x", "arg"]
    result = rewritten(words, ENV)
    assume(isinstance(result, Rewrite))
    assert isinstance(result, Rewrite)
    env = {**ENV, **result.env}
    received = stubs.received(result.command, None, env)
    assume(received)  # a script that fails before vLLM still does
    assert without_limits(received) == without_limits(stubs.received(words, None, ENV))
    assert (values_in(received, "seqs"), values_in(received, "batched-tokens")) == ({"64"}, {"4096"})
    again = rewritten(result.command, env)
    assert isinstance(again, Rewrite)
    assert (again.command, again.env) == (result.command, {})
