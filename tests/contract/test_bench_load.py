"""The load benchmark at a small scale: its server keeps its pace, and this project's client sees what it did."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load.truth import Plan, running

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="the truth server needs Go, which is not here")

ROOT = Path(__file__).parents[2]
QUANTILES = {"ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99"}


@pytest.fixture(scope="module")
def last_line(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    page = tmp_path_factory.mktemp("bench") / "load.md"
    command = [sys.executable, "-m", "benchmarks.load", "--clients", "kneekeeper", "--levels", "8", "40rps"]
    command += [
        "--requests",
        "4",
        "--duration-s",
        "2",
        "--output-tokens",
        "20",
        "--spread",
        "0.5",
        "--table",
        str(page),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result | {"page": page.read_text(encoding="utf-8")}


def test_the_last_line_has_an_error_a_rate_and_a_cpu_for_each_load(last_line):
    assert last_line["failed"] == last_line["skipped"] == {}
    for load in ("8", "40rps"):
        assert set(last_line["error_ms"]["kneekeeper"][load]) == QUANTILES
        assert last_line["achieved"]["kneekeeper"][load] > 0.5
        assert 0 < last_line["cpu"]["kneekeeper"][load] < 2
        assert f"| kneekeeper {last_line['versions']['kneekeeper']} | {load}" in last_line["page"]


@pytest.mark.parametrize("load", ["8", "40rps"])
def test_the_client_sees_what_happened_or_says_that_it_cannot(last_line, load):
    errors, verdict = last_line["error_ms"]["kneekeeper"][load], last_line["verdict"]["kneekeeper"][load]
    assert abs(errors["tpot_p50"]) < 0.5, "stamps are the kernel's, so even a late client knows the pace"
    assert errors["ttft_p50"] > -0.5, "a client cannot see a token before it was sent"
    assert verdict.startswith("Invalid") or (errors["ttft_p50"] < 20 and errors["ttft_p99"] < 100)


def test_the_truth_is_at_the_pace_that_was_planned(last_line):
    truth = last_line["truth_ms"]["kneekeeper"]["40rps"]
    assert 60 < truth["ttft_p50"] < 200
    assert 15 < truth["tpot_p50"] < 30


def test_the_server_forgets_what_was_before_a_plan():
    with running() as server:
        server.set_plan(Plan(1, 1))
        assert server.truth().arrived_s.size == 0
