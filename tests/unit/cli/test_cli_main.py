"""The command line as a whole: what it accepts, what it refuses, and the two things that are made from it."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kneekeeper.cli.completion import SHELLS
from kneekeeper.cli.ending import ExitCode
from kneekeeper.cli.main import main, parser_of
from kneekeeper.cli.parser import PROGRAM
from kneekeeper.cli.reference import leaves, with_reference

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def commands() -> dict[str, argparse.ArgumentParser]:
    parser = parser_of(PROGRAM)
    (group,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(group.choices)


def test_the_reference_is_what_argparse_knows():
    assert with_reference(PAGE) == PAGE, "run make cli-docs"


def test_a_page_without_a_place_for_the_reference_is_refused():
    with pytest.raises(ValueError, match="reference: begin"):
        with_reference("# A page\n")


@pytest.mark.parametrize(("name", "parser"), [*leaves(parser_of(PROGRAM), PROGRAM)])
def test_every_command_says_its_exit_codes_and_what_they_mean(name: str, parser: argparse.ArgumentParser):
    epilog = parser.epilog or ""
    assert epilog.startswith("exit codes:\n"), name
    codes = re.findall(r"^  (\d+) +\S", epilog, re.MULTILINE)
    assert {"0", "2"} <= set(codes), name


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_completion_that_knows_the_commands(shell: str, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in ("status", "simulate", "max-num-seqs", "kubeconfig"):
        assert name in script


def test_bash_takes_its_completion_and_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    main(["completion", "bash"])
    script = tmp_path / "kneekeeper.bash"
    script.write_text(capsys.readouterr().out)
    told = subprocess.run(
        [
            bash,
            "-c",
            f'. {script}; COMP_WORDS=(kneekeeper sta); COMP_CWORD=1; "$(complete -p kneekeeper | sed "s/.*-F //; '
            's/ .*//")"; printf "%s\\n" "${COMPREPLY[@]}"',
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout
    assert told.split() == ["status"]


def test_what_cannot_be_done_is_told_by_the_name_that_was_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["status", "--kubeconfig", "/nowhere/config"]
    assert main(words) == ExitCode.CANNOT
    told = capsys.readouterr().err
    assert told.startswith("kneekeeper: no cluster is known by /nowhere/config")
    assert "Set KUBECONFIG" in told
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/kubectl-kneekeeper"])
    assert main(words) == ExitCode.CANNOT
    assert capsys.readouterr().err.startswith("kubectl kneekeeper: ")


def test_ctrl_c_ends_with_its_own_code(monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kneekeeper.cli.status.in_cluster", interrupted)
    assert main(["status"]) == ExitCode.INTERRUPTED


def test_a_name_and_all_namespaces_exclude_each_other(capsys: pytest.CaptureFixture[str]):
    assert main(["status", "chat", "-A"]) == ExitCode.CANNOT
    assert "-n instead of -A" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["status", "-n", "prod", "-A"])
    assert ended.value.code == ExitCode.CANNOT


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["prob"], "; did you mean probe?\n"),
        (["tune", "--ttft", "1s", "--objective", "troughput"], "; did you mean throughput?\n"),
        (
            ["probe", "--url", "http://h", "--users", "4", "--rate", "2"],
            "not allowed with argument --users; give one of --ladder, --users, --rate\n",
        ),
        (["status", "-A", "-n", "prod"], "; give one of --namespace, --all-namespaces\n"),
        (
            ["tune", "--ttft", "500ms", "python", "-m", "kneekeeper.engine", "serve", "tiny"],
            "serve tiny. Put `--` before the server's command: kneekeeper tune … -- vllm serve MODEL\n",
        ),
        (["tune", "--ttft", "1s", "vllm", "serve", "m", "--api-key", "secret"], "Put `--` before the server's command"),
        (["tune", "--tftt", "1s", "--", "vllm", "serve", "m"], "unrecognized arguments: --tftt\n"),
        (["status", "--nonsense"], "unrecognized arguments: --nonsense\n"),
        (["zzz"], "'finalizers')\n"),
    ],
)
def test_wrong_usage_is_told_with_what_was_probably_meant(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == ExitCode.CANNOT
    assert told in capsys.readouterr().err


def test_the_package_has_both_names():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'kubectl-kneekeeper = "kneekeeper.cli.start:main"' in text
