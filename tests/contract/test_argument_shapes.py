"""More shapes of command lines: rewritten ones are run by real shells, the others name what stops them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from kneekeeper.domain.arguments import (
    Content,
    Environment,
    ImageEntrypoint,
    Refusal,
    RefusalReason,
    Rewrite,
    VariableUse,
    WrittenLimits,
    read_written_limits,
    rewrite,
)
from tests.contract.engine_stub import Stubs

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

M = "org/m"
OTHER_PROGRAMS = ("pip", "hf", "ray", "tee", "sleep", "nvidia-smi", "numactl", "curl", "grep")
LIMIT = re.compile(r"--max[-_]num[-_](seqs|batched[-_]tokens)(=.*)?")
NUMBER = re.compile(r"\d+[kK]?")


@dataclass(frozen=True)
class Shape:
    """A container's words; `before` are the texts of the limits, None for the default."""

    what: str
    command: Sequence[str] | None
    args: Sequence[str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str | None, str | None] = (None, None)
    sets: Mapping[str, str] = field(default_factory=dict)  # variables that are set instead of words


def sh(what: str, script: str, before: tuple[str | None, str | None] = (None, None), **env: str) -> Shape:
    return Shape(what, ["sh", "-c"], [script], env, before)


def bash(what: str, script: str, before: tuple[str | None, str | None] = (None, None), **env: str) -> Shape:
    return Shape(what, ["bash", "-c"], [script], env, before)


REWRITTEN = [
    Shape("underscores and = in exec form", ["vllm", "serve", M], ["--max_num_seqs=8"], before=("8", None)),
    Shape("dash and underscore mixed", ["vllm", "serve", M, "--max-num_seqs", "8"], before=("8", None)),
    Shape("a suffix of thousand", ["vllm", "serve", M], ["--max-num-batched-tokens=8k"], before=(None, "8k")),
    Shape("a binary suffix", ["vllm", "serve", M], ["--max-num-batched-tokens", "8K"], before=(None, "8K")),
    Shape("digits in groups", ["vllm", "serve", M], ["--max-num-batched-tokens", "8_192"], before=(None, "8_192")),
    Shape(
        "a dotted JSON flag",
        ["vllm", "serve", M],
        ["--compilation-config.mode", "3", "--max-num-seqs=9"],
        before=("9", None),
    ),
    Shape("JSON that holds the flag's name", ["vllm", "serve", M], ["--additional-config", '{"max_num_seqs": 5}']),
    Shape(
        "the program in args behind an unknown image",
        None,
        ["vllm", "serve", M, "--max-num-seqs", "8"],
        before=("8", None),
    ),
    Shape(
        "a negative number as a value",
        ["vllm", "serve", M],
        ["--seed", "-1", "--max-num-seqs", "8"],
        before=("8", None),
    ),
    Shape(
        "a limit before a list of values",
        ["vllm", "serve", M],
        ["--max-num-seqs=8", "--served-model-name", "a", "b"],
        before=("8", None),
    ),
    Shape(
        "an escaped kubelet reference",
        ["vllm", "serve", M],
        ["--chat-template", "$$(X)", "--max-num-seqs", "$(N)"],
        {"N": "8"},
        ("8", None),
    ),
    Shape(
        "the whole flag from the kubelet", ["vllm", "serve", M], ["$(FLAG)"], {"FLAG": "--max-num-seqs=8"}, ("8", None)
    ),
    sh("exec", f"exec vllm serve {M} --max-num-seqs 8", ("8", None)),
    sh("a module", f"python3 -m vllm.entrypoints.openai.api_server --model {M} --max-num-seqs=8", ("8", None)),
    sh("double quotes around flag and value", f'vllm serve {M} "--max-num-seqs=8"', ("8", None)),
    sh("single quotes around a value", f"vllm serve {M} --max-num-seqs '8'", ("8", None)),
    sh("quotes inside a word", f'vllm serve {M} --max-num-seqs="8" --port 80', ("8", None)),
    sh("a backslash before a letter", f"vllm serve {M} --max-num-s\\eqs 8", ("8", None)),
    sh("a comment behind the command", f"vllm serve {M} --max-num-seqs 8 # was --max-num-seqs 16", ("8", None)),
    sh("a redirection behind it", f"vllm serve {M} > log 2>&1"),
    sh("a redirection between the words", f"vllm serve {M} 2> log --port 80"),
    sh("a pipe behind it", f"vllm serve {M} --max-num-seqs 8 2>&1 | tee log", ("8", None)),
    sh("the background and wait", f"vllm serve {M} &\nwait"),
    sh("a chain with ||", f"vllm serve {M} --max-num-seqs 8 || sleep 1", ("8", None)),
    sh("a variable for this command", f"VLLM_USE_V1=1 OMP_NUM_THREADS=4 vllm serve {M} --max-num-seqs 8", ("8", None)),
    sh("env before the program", f"exec env A=1 vllm serve {M} --max-num-seqs 8", ("8", None)),
    sh("options of set", f"set -eux; set -o errexit\nvllm serve {M}"),
    sh("an if around it", f"if [ -n x ]; then\n  vllm serve {M} --max-num-seqs 8\nelse\n  sleep 1\nfi", ("8", None)),
    sh("a loop before it", f"until [ -n x ]; do sleep 1; done; for i in a b; do sleep 1; done\nexec vllm serve {M}"),
    sh("braces", f"{{ ulimit -n 99; vllm serve {M} --max-num-seqs 8; }}", ("8", None)),
    sh("a subshell", f"(cd / && vllm serve {M} --max-num-seqs 8)", ("8", None)),
    sh("a variable of the script", f"N=8; vllm serve {M} --max-num-seqs $N", ("8", None)),
    sh("an exported variable", f"export N=8 && exec vllm serve {M} --max-num-seqs=$N", ("8", None)),
    sh(
        "options collected in a variable",
        f'A="--port 80 --max-num-seqs 8"\nA="$A --seed 1"\nvllm serve {M} $A',
        ("8", None),
    ),
    sh("a default that holds flags", f"vllm serve {M} ${{EXTRA:---max-num-seqs 8 --seed 1}}", ("8", None)),
    sh("an alternative", f"vllm serve {M} ${{LORA:+--enable-lora}} --max-num-seqs 8", ("8", None), LORA="1"),
    Shape(
        "a default of a default",
        ["sh", "-c", f'vllm serve {M} --max-num-seqs "${{A:-${{B:-8}}}}"'],
        before=("8", None),
        sets={"A": "64"},
    ),
    sh("arithmetic in the limit itself", f"vllm serve {M} --max-num-seqs $((4 * 2))", ("8", None)),
    sh("the same variable for two flags", f"vllm serve {M} --max-num-seqs $N --seed $N", ("8", None), N="8"),
    sh(
        "an unknown output elsewhere",
        f"N=$(nvidia-smi -L | grep -c GPU); echo $N; vllm serve {M} --max-num-seqs 8",
        ("8", None),
    ),
    sh("a quoted unknown output", f'vllm serve {M} --chat-template "$(echo a b)" --max-num-seqs 8', ("8", None)),
    sh(
        "words that look like the flag elsewhere",
        f'echo --max-num-seqs 8; pip install "max-num-seqs==8"; vllm serve {M}',
    ),
    sh(
        "a line that goes on inside quotes", f"vllm serve {M} --chat-template 'a\nb' \\\n --max-num-seqs 8", ("8", None)
    ),
    sh("a carriage return at the end", f"vllm serve {M} --max-num-seqs 8\r", ("8\r", None)),
    bash(
        "[[ ]] and +=", f'A=--seed; [[ -z "$X" ]] && sleep 1; A+=" 1"; vllm serve {M} $A --max-num-seqs 8', ("8", None)
    ),
    bash("&> in bash", f"vllm serve {M} --max-num-seqs 8 &> log", ("8", None)),
    Shape(
        "options of the shell",
        ["/bin/bash", "-euo", "pipefail", "-c", f"vllm serve {M} --max-num-seqs 8"],
        before=("8", None),
    ),
    Shape("long options of the shell", ["bash", "--norc", "-c"], [f"vllm serve {M}"]),
    Shape(
        "arguments behind the script",
        ["sh", "-c", 'exec vllm serve "$@"', "--"],
        [M, "--max-num-seqs", "8"],
        before=("8", None),
    ),
    Shape(
        "a single argument behind the script",
        ["sh", "-c", 'vllm serve "$1" --max-num-seqs 8', "x", M],
        before=("8", None),
    ),
    Shape("words behind a script that does not read them", ["sh", "-c"], [f"vllm serve {M}", "--max-num-seqs", "8"]),
    Shape(
        "kubelet and shell together",
        ["sh", "-c", f'vllm serve {M} --max-num-seqs $(N) --seed "$$N"'],
        None,
        {"N": "8"},
        ("8", None),
    ),
    Shape(
        "a variable that is set",
        ["sh", "-c", f"vllm serve {M} --max-num-seqs $N"],
        None,
        {"N": "8"},
        ("8", None),
        {"N": "64"},
    ),
    Shape(
        "flags in a variable of the container",
        ["sh", "-c", f"vllm serve {M} $EXTRA"],
        None,
        {"EXTRA": "--seed 1 --max-num-seqs 8"},
        ("8", None),
        {"EXTRA": "--seed 1 --max-num-seqs 64"},
    ),
]


def words_of(shape: Shape, stubs: Stubs) -> list[str]:
    return stubs.received(shape.command, shape.args, shape.env)


@pytest.mark.parametrize("shape", REWRITTEN, ids=lambda shape: shape.what)
def test_a_real_shell_hands_vllm_the_limits_and_all_other_words_as_before(shape, tmp_path):
    stubs = Stubs(tmp_path)
    stubs.add(*OTHER_PROGRAMS)
    limits = read_written_limits(shape.command, shape.args, shape.env, entrypoint=ImageEntrypoint.VLLM_SERVER)
    assert limits == WrittenLimits(*shape.before)
    result = rewritten(shape.command, shape.args, shape.env)
    assert isinstance(result, Rewrite), result
    assert result.env == shape.sets
    after = Shape("", result.command, result.args, {**shape.env, **result.env})
    received = words_of(after, stubs)
    assert values_in(received, "seqs") == {"64"}
    assert values_in(received, "batched-tokens") == {"4096"}
    assert without_limits(received) == without_limits(words_of(shape, stubs))
    again = rewritten(after.command, after.args, after.env)
    assert isinstance(again, Rewrite)
    assert (again.command, again.args, again.env) == (result.command, result.args, {})


def rewritten(command: Sequence[str] | None, args: Sequence[str] | None, env: Mapping[str, str]) -> Rewrite | Refusal:
    return rewrite(
        command,
        args,
        env,
        max_num_seqs=64,
        max_num_batched_tokens=4096,
        entrypoint=ImageEntrypoint.VLLM_SERVER,
        variables=VariableUse.SET,
    )


def values_in(words: Sequence[str], limit: str) -> set[str]:
    found = set()
    for at, word in enumerate(words):
        key, equals, value = word.replace("_", "-").partition("=")
        if key == f"--max-num-{limit}":
            found.add((value if equals else words[at + 1]).strip())
    return found


def without_limits(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        found = LIMIT.fullmatch(word)
        if found is None and not skip:
            kept.append(word)
        skip = found is not None and found.group(2) is None
    return kept


REFUSED = [
    ("eval", "eval vllm serve m --max-num-seqs 8", RefusalReason.SHELL_COMMAND, "eval"),
    ("a sourced file", ". ./env.sh; vllm serve m", RefusalReason.SHELL_COMMAND, "./env.sh"),
    ("a here-document", "cat <<E > f\nx\nE\nvllm serve m", RefusalReason.SHELL_COMMAND, "<<E"),
    ("a function", "run() { vllm serve m; }; run", RefusalReason.SHELL_COMMAND, "run()"),
    ("case", "case $R in a) vllm serve m;; esac", RefusalReason.SHELL_COMMAND, "case"),
    ("an array", "A=(--seed 1); vllm serve m", RefusalReason.SHELL_COMMAND, "A=("),
    ("two engines", "if [ x ]; then vllm serve a; else vllm serve b; fi", RefusalReason.SHELL_COMMAND, "vllm serve b"),
    ("a shell in the shell", 'bash -c "vllm serve m"', RefusalReason.SHELL_COMMAND, "bash -c"),
    ("a wrapper that is not known", "numactl -N 0 vllm serve m", RefusalReason.SHELL_COMMAND, "numactl"),
    ("an open quote", "vllm serve 'm", RefusalReason.SHELL_COMMAND, "'m"),
    ("an open bracket", "vllm serve $(m", RefusalReason.SHELL_COMMAND, "(m"),
    (
        "a comment between continued lines",
        "vllm serve m \\\n # x \\\n --seed 1",
        RefusalReason.SHELL_COMMAND,
        "--seed 1",
    ),
    ("a blank behind the backslash", "vllm serve m \\ \n --seed 1", RefusalReason.SHELL_COMMAND, "--seed 1"),
    ("a bare unknown output", "vllm serve m --seed $(date +%s)", RefusalReason.UNRESOLVED_VARIABLE, "$(date +%s)"),
    ("a bare variable that is not set", "vllm serve m $EXTRA", RefusalReason.UNRESOLVED_VARIABLE, "$EXTRA"),
    ("a bare secret", "vllm serve m --api-key $KEY", RefusalReason.UNRESOLVED_VARIABLE, "$KEY"),
    ("a file pattern", "vllm serve /models/*", RefusalReason.UNRESOLVED_VARIABLE, "/models/*"),
    ("braces that expand", 'vllm serve m --kv-transfer-config {"a":1,"b":2}', RefusalReason.UNRESOLVED_VARIABLE, "{"),
    (
        "an assignment that may not happen",
        "[ x ] && A=--seed; vllm serve m $A 1",
        RefusalReason.UNRESOLVED_VARIABLE,
        "$A",
    ),
    (
        "an assignment in a branch",
        "if x; then A=1; fi; vllm serve m --seed $A",
        RefusalReason.UNRESOLVED_VARIABLE,
        "$A",
    ),
    (
        "an assignment in a loop",
        "for A in 1 2; do :; done; vllm serve m --seed $A",
        RefusalReason.UNRESOLVED_VARIABLE,
        "$A",
    ),
    ("a cut value", "vllm serve m --seed ${A%x}", RefusalReason.UNRESOLVED_VARIABLE, "${A%x}"),
    ("other arguments", "set -- a b; vllm serve m", RefusalReason.SHELL_COMMAND, "set --"),
    ("read", "read A; vllm serve m", RefusalReason.SHELL_COMMAND, "read A"),
    ("other separators", "IFS=,; vllm serve m", RefusalReason.SHELL_COMMAND, "IFS"),
    ("the program in a variable", "$RUN m", RefusalReason.SHELL_COMMAND, "$RUN"),
    ("no engine", "nginx -g x", RefusalReason.NOT_VLLM, "sh -c"),
    ("a limit from two places", "vllm serve m --max-num-seqs ${A}0", RefusalReason.NOT_UNDERSTOOD, "{A}0"),
    ("an empty limit", 'vllm serve m --max-num-seqs ""', RefusalReason.INVALID_VALUE, "--max-num-seqs"),
    ("a suffix where vLLM takes none", "vllm serve m --max-num-seqs 1K", RefusalReason.INVALID_VALUE, "1K"),
    ("ANSI quotes", "vllm serve $'m'", RefusalReason.SHELL_COMMAND, "$'m'"),
    ("&> in a shell that may not be bash", "vllm serve m &> log", RefusalReason.SHELL_COMMAND, "&> log"),
    ("a process substitution", "vllm serve m > >(tee log)", RefusalReason.SHELL_COMMAND, ">(tee"),
    ("a coprocess", "coproc vllm serve m", RefusalReason.SHELL_COMMAND, "coproc"),
    ("a missing fi", "if x; then vllm serve m", RefusalReason.SHELL_COMMAND, "the end of the script"),
]


@pytest.mark.parametrize(
    ("script", "reason", "piece"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_is_not_certain_is_refused_with_the_piece_and_a_next_step(script, reason, piece):
    environment = Environment({"A": "8"}, {"KEY": Content.ANYTHING})
    result = rewritten(["sh", "-c", script], None, environment)
    assert isinstance(result, Refusal), result
    assert (result.reason, piece in result.message) == (reason, True), result
    assert result.message.endswith(".")


@pytest.mark.parametrize("name", ["zsh", "fish", "/usr/bin/ksh"])
def test_shells_with_another_language_are_refused(name):
    result = rewritten([name, "-c", "vllm serve m"], None, {})
    assert isinstance(result, Refusal)
    assert result.reason == RefusalReason.SHELL_COMMAND


def test_a_pods_address_is_one_word_although_its_value_is_not_known():
    environment = Environment({}, {"POD_IP": Content.ONE_WORD})
    assert isinstance(rewritten(["sh", "-c", "vllm serve m --host $POD_IP"], None, environment), Rewrite)


def test_a_variable_is_kept_when_only_words_may_be_written():
    words = ["sh", "-c", "vllm serve m --max-num-seqs ${N:-8} --max-num-batched-tokens=4096"]
    result = rewrite(words, None, {"N": "9"}, max_num_seqs=64, max_num_batched_tokens=4096)
    assert isinstance(result, Rewrite)
    assert result.command == ["sh", "-c", "vllm serve m --max-num-seqs 64 --max-num-batched-tokens=4096"]
    assert (result.env, result.silenced) == ({}, ("N",))


def test_there_are_more_than_forty_shapes():
    assert len(REWRITTEN) + len(REFUSED) >= 80
