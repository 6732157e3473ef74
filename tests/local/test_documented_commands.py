"""Every command of docs/cli.md and of the README's section is run as it stands there, with a simulated `vllm`."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engine_process import FAST, Engine, running_engine
from tests.local.processes import Command, here

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README.split("## Without a cluster", 1)[1].split("\n## ", 1)[0]


def commands(text: str) -> list[str]:
    """All lines of shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def of(verb: str) -> list[str]:
    return sorted({line for line in (*commands(PAGE), *commands(SECTION)) if line.startswith(f"kneekeeper {verb} ")})


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the page's files, and a `vllm` on the path that is the simulated engine."""
    yaml = re.search(r"```yaml\n# chat\.yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert yaml
    (tmp_path / "chat.yaml").write_text(yaml[1], encoding="utf-8")
    vllm = tmp_path / "bin" / "vllm"
    vllm.parent.mkdir()
    vllm.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kneekeeper.engine "$@"\n', encoding="utf-8")
    vllm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{vllm.parent}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(FAST, "serve", "tiny") as server:
        yield server


def test_the_page_and_the_readme_have_examples_of_both_commands() -> None:
    assert len(of("tune")) == 3
    assert len(of("probe")) == 4
    assert sum("--slo" in line for line in of("probe")) == 2


@pytest.mark.parametrize("line", [line for line in of("tune") if "--resume" not in line])
def test_a_documented_tuning_loads_the_server_and_ends_when_it_is_interrupted(line: str, desk: Path) -> None:
    command = Command(desk, FAST)
    command.start(*shlex.split(line)[1:])
    command.until("  warm-up-1-1")
    command.interrupt()
    assert command.wait(30) == 130
    assert command.left_behind() == []
    # The documented way on differs in nothing but the folder from the one that is told.
    documented = next(line for line in of("tune") if "--resume" in line)
    told = re.search(r"kneekeeper tune --resume \S+/kneekeeper/tune-[0-9a-f]{8}$", command.output(), flags=re.MULTILINE)
    assert told
    assert re.sub(r"\S+/kneekeeper/tune-[0-9a-f]{8}$", "", documented) == re.sub(r"\S+$", "", told[0])


@pytest.mark.parametrize("line", of("probe"))
def test_a_documented_probe_measures(
    line: str, desk: Path, engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with targets end in PASS as they stand, others are kept short."""
    words = shlex.split(line.replace("http://127.0.0.1:8000", engine.url))[1:]
    judged = "--slo" in words
    if not judged:
        words += ["--requests", "20"]
    elif "--workload" not in words:
        words += ["--workload", "chat.yaml"]  # shorter requests than the usual ones
    ended = here(desk, capsys, monkeypatch, FAST).run(*words)
    assert ended.code in (0, 4), ended.output  # 4: a machine so busy that the client was late
    assert ("PASS" in ended.output) == (judged and ended.code == 0)
    for written in re.findall(r"--output (\S+)", line):
        assert (desk / written).stat().st_size > 0
