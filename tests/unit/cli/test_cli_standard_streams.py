"""Whoever reads what a command prints may go: the command does its work and ends with its own exit code."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kneekeeper.cli.standard_streams import reader_is_gone, whoever_reads


def without_a_reader(*words: str, directory: Path, both: bool = False) -> tuple[int, str]:
    """The exit code of a command into a pipe that nobody reads, and what it told on standard error."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "kneekeeper.cli.main", *words],
            stdout=writer,
            stderr=writer if both else subprocess.PIPE,
            cwd=directory,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    return ended.returncode, "" if both else ended.stderr.decode()


def in_python(code: str) -> tuple[int, str]:
    """The same of a program that prints within `whoever_reads`."""
    reader, writer = os.pipe()
    os.close(reader)
    head = "import sys\nfrom rich.console import Console\n"
    head += "from kneekeeper.cli.standard_streams import reader_is_gone, whoever_reads\n"
    try:
        ended = subprocess.run(
            [sys.executable, "-c", head + code], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writer)
    return ended.returncode, ended.stderr.decode()


@pytest.mark.parametrize(
    "prints",
    ["print('x' * 100_000)", "Console().print('x')", "sys.stdout.buffer.write(b'x'); sys.stdout.buffer.flush()"],
)
def test_every_way_to_print_goes_on_without_a_reader(prints: str):
    within = "".join(f"    {line}\n" for line in (prints, prints, "print(reader_is_gone(), file=sys.stderr)"))
    assert in_python(f"with whoever_reads():\n{within}sys.exit(5)\n") == (5, "True\n")


@pytest.mark.parametrize(("words", "code"), [(("--help",), 0), (("completion", "bash"), 0), (("probe",), 2)])
@pytest.mark.parametrize("both", [False, True], ids=["output", "output and errors"])
def test_a_command_without_a_reader_ends_with_its_own_code(
    words: tuple[str, ...], code: int, both: bool, tmp_path: Path
):
    ended, told = without_a_reader(*words, directory=tmp_path, both=both)
    assert ended == code
    assert "BrokenPipe" not in told


def test_a_command_whose_output_is_closed_from_the_start_ends_with_its_own_code():
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m kneekeeper.cli.main completion bash >&-"],
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_what_is_read_is_whole_and_in_order(capfd: pytest.CaptureFixture[str]):
    stream = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), encoding="utf-8")
    before, sys.stdout = sys.stdout, stream
    try:
        print("before")
        with whoever_reads():
            assert sys.stdout is not stream
            print("within, 20 × ü")
            assert not reader_is_gone()
        assert sys.stdout is stream
    finally:
        sys.stdout = before
        stream.close()
    assert capfd.readouterr().out == "before\nwithin, 20 × ü\n"


@pytest.mark.parametrize("words", [("--help",), ("completion", "bash"), ("check", "--file", "FILE")])
def test_output_for_which_there_is_no_room_is_a_failure_with_the_next_step(words: tuple[str, ...], tmp_path: Path):
    file = tmp_path / "a.yaml"
    file.write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"
        "spec: {template: {spec: {containers: [{name: v, image: x, command: [vllm, serve, m]}]}}}\n"
    )
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "kneekeeper.cli.main", *(str(file) if word == "FILE" else word for word in words)],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    told = "standard output cannot be written: No space left on device. Make room, or print it to somewhere else."
    assert (ended.returncode, ended.stderr.decode()) == (2, f"kneekeeper: {told}\n")
