"""`kneekeeper probe` from its command line to its reports, against simulated engines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from kneekeeper.cli.probe import ExitCode
from tests.contract.engine_process import FAST, Engine, free_port, running_engine
from tests.local.processes import PYTHON, Command, Here, here

WORKLOAD = """\
promptTokens: {distribution: Uniform, min: 20, max: 40}
outputTokens: {distribution: Uniform, min: 4, max: 8}
arrivals: {process: Constant}
"""
PATIENT = "ttft=100s,tpot=20s"
"""So long that the client's delays on a busy machine do not matter beside them."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(FAST, "serve", "tiny", "--max-num-seqs", "8") as server:
        yield server


@pytest.fixture
def probe(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    (tmp_path / "workload.yaml").write_text(WORKLOAD, encoding="utf-8")
    return here(tmp_path, capsys, monkeypatch, FAST)


def report_of(directory: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((directory / "r.json").read_bytes())
    return report


def load(*more: str) -> tuple[str, ...]:
    return ("--workload", "workload.yaml", "--output", "r.json", *more)


def test_a_ladder_measures_every_level_and_writes_all_reports(engine: Engine, probe: Here) -> None:
    more = ("--ladder", "1..4", "--slo", PATIENT, "--requests", "60", "--output", "r.csv", "--output", "r.html")
    ended = probe.run("probe", "--url", engine.url, *load(*more))
    report = report_of(probe.directory)
    assert [level["users"] for level in report["levels"]] == [1, 2, 4]
    assert all(level["requests_per_s"] > 0 and level["ttft"]["p50_s"] > 0 for level in report["levels"])
    assert report["model"] == "tiny"
    assert report["server_metrics"] is True
    assert report["contradictions"] == [], "nobody else used the server"
    assert report["verdict"] == "Inconclusive", "60 requests cannot tell a P99"
    assert ended.code == 3
    for level in report["levels"]:
        assert level["warmup_requests"] > 0
        assert level["warmup_requests"] + level["requests"] == 60
        assert re.search(r"more are needed to tell\. Give --requests \d+", level["message"])
    cut = sum(level["warmup_requests"] for level in report["levels"])
    assert f"Warm-up: {cut} of 180 requests" in ended.output
    assert (probe.directory / "r.csv").read_text().count("\n") == 4
    assert "<svg" in (probe.directory / "r.html").read_text()
    assert "users-4" in ended.output
    assert probe.left_behind() == []


def test_a_rate_that_the_server_carries_passes(engine: Engine, probe: Here) -> None:
    # Where this machine is too busy to measure it says so, and is asked again.
    codes = (probe.run("probe", "--url", engine.url, *load("--rate", "60", "--slo", "ttft=1s")).code for _ in range(3))
    assert next((code for code in codes if code != ExitCode.INVALID), ExitCode.INVALID) == ExitCode.PASS
    level = report_of(probe.directory)["levels"][0]
    assert level["verdict"] == "Pass"
    assert level["offered_requests_per_s"] == 60


def test_real_prompts_are_sent_from_a_file(engine: Engine, probe: Here) -> None:
    (probe.directory / "prompts.jsonl").write_text('{"text": "Why is the sky blue?"}\n', encoding="utf-8")
    before = engine.sample("vllm:prompt_tokens_total")
    more = ("--users", "1", "--requests", "20", "--slo", PATIENT, "--prompts", "prompts.jsonl")
    assert probe.run("probe", "--url", engine.url, *load(*more)).code == 3
    requests = report_of(probe.directory)["levels"][0]["requests"]
    assert requests > 0
    assert (engine.sample("vllm:prompt_tokens_total") - before) / 20 < 20, "drawn prompts have at least 20 tokens"


def test_targets_that_no_request_meets_fail(engine: Engine, probe: Here) -> None:
    """The first token comes in no time, which only a client that is in time can tell; a late one is Invalid."""
    assert probe.run("probe", "--url", engine.url, *load("--users", "2", "--slo", "ttft=1us")).code in (1, 4)
    assert report_of(probe.directory)["levels"][0]["misses"] > 0


def test_requests_of_somebody_else_are_told(engine: Engine, probe: Here) -> None:
    over = threading.Event()

    def disturb() -> None:
        while not over.wait(0.2):
            httpx.post(f"{engine.url}/v1/completions", json={"model": "tiny", "prompt": "a b", "max_tokens": 2})

    somebody = threading.Thread(target=disturb)
    somebody.start()
    try:
        more = ("--rate", "20", "--requests", "40", "--slo", PATIENT)
        ended = probe.run("probe", "--url", engine.url, *load(*more))
    finally:
        over.set()
        somebody.join()
    found = {entry["kind"] for entry in report_of(probe.directory)["contradictions"]}
    assert {"Requests", "OutputTokens"} <= found
    assert "Somebody else" in ended.output


def test_reports_are_written_and_the_code_is_kept_where_nobody_reads(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(WORKLOAD, encoding="utf-8")
    words = ("--url", engine.url, *load("--users", "1", "--requests", "12", "--output", "r.html"))
    reader, writer = os.pipe()
    os.close(reader)
    probe = subprocess.run(
        [PYTHON, "-m", "kneekeeper.cli.main", "probe", *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (probe.returncode, probe.stderr) == (0, b"")
    assert report_of(tmp_path)["levels"]
    assert (tmp_path / "r.html").exists()


def test_a_report_that_cannot_be_written_hides_no_other(engine: Engine, probe: Here) -> None:
    (probe.directory / "full.csv").symlink_to("/dev/full")
    more = ("--users", "1", "--requests", "12", "--output", "full.csv", "--output", "r.html")
    ended = probe.run("probe", "--url", engine.url, *load(*more))
    assert ended.code == 2
    assert "--output: full.csv cannot be written: No space left" in ended.output
    assert "users-1" in ended.output
    assert "Written: r.html" in ended.output
    assert (probe.directory / "r.html").exists()


def test_ctrl_c_keeps_what_was_measured(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(WORKLOAD, encoding="utf-8")
    command = Command(tmp_path)
    command.start("probe", "--url", engine.url, *load("--ladder", "1..2", "--slo", PATIENT, "--requests", "100000"))
    command.until("Model tiny")
    before = engine.sample("vllm:request_success_total", finished_reason="length")
    end = time.monotonic() + 60
    while engine.sample("vllm:request_success_total", finished_reason="length") < before + 20:
        assert time.monotonic() < end, command.output()
    command.interrupt()
    assert command.wait(30) == 130
    report = report_of(tmp_path)
    assert report["interrupted"] is True
    assert [level["users"] for level in report["levels"]] == [1]
    assert report["levels"][0]["requests"] > 0
    assert command.left_behind() == []


def test_a_server_that_is_killed_meanwhile_fails_no_target_and_is_told_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(WORKLOAD, encoding="utf-8")
    command = Command(tmp_path)
    with running_engine(FAST, "serve", "tiny") as server:
        more = ("--users", "2", "--slo", PATIENT, "--requests", "100000", "--output", "r.html")
        command.start("probe", "--url", server.url, *load(*more))
        command.until("Model tiny")
        end = time.monotonic() + 60
        while server.sample("vllm:request_success_total", finished_reason="length") < 50:
            assert time.monotonic() < end, command.output()
        server.process.kill()
        assert command.wait(60) == 2
    assert "FAIL" not in command.output()
    assert command.output().count("NOT MEASURED") == 2
    assert f"the server is gone: nothing listens at {server.url} any more. Look in its log" in command.output()
    [level] = report_of(tmp_path)["levels"]
    assert (level["verdict"], level["state"]) == ("Void", "Failed")
    assert "NOT MEASURED" in (tmp_path / "r.html").read_text()


def test_a_server_that_asks_for_a_key_gets_it_from_the_file(probe: Here) -> None:
    with running_engine(FAST, "serve", "tiny", "--api-key", "secret") as server:
        refused = probe.run("probe", "--url", server.url, *load("--users", "1"))
        assert refused.code == 2
        assert "--api-key-file" in refused.output
        (probe.directory / "key").write_text("secret\n")
        more = ("--users", "1", "--api-key-file", "key", "--slo", PATIENT, "--requests", "20")
        ended = probe.run("probe", "--url", server.url, *load(*more))
    assert ended.code == 3
    assert report_of(probe.directory)["levels"][0]["failed"] == 0
    assert "secret" not in ended.output


def test_a_model_that_is_not_served_is_told_with_those_that_are(engine: Engine, probe: Here) -> None:
    ended = probe.run("probe", "--url", engine.url, "--model", "other", *load())
    assert ended.code == 2
    assert "it has: tiny" in ended.output


def test_a_server_that_is_not_there_is_told(probe: Here) -> None:
    ended = probe.run("probe", "--url", f"http://127.0.0.1:{free_port()}", *load())
    assert ended.code == 2
    assert "Start it, or correct the address" in ended.output


def test_a_server_without_https_is_told_so(engine: Engine, probe: Here) -> None:
    ended = probe.run("probe", "--url", engine.url.replace("http://", "https://"))
    assert ended.code == 2
    assert f"It does not speak HTTPS: use {engine.url}." in ended.output


@contextmanager
def plain_server() -> Iterator[str]:
    """A server with OpenAI's API that is not vLLM: it streams two tokens and has no metrics."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = self.path == "/v1/models"
            self._answer(200 if found else 404, b'{"object":"list","data":[{"id":"plain","object":"model"}]}')

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            chunk = b'data: {"choices":[{"index":0,"text":" a","finish_reason":null}]}\n\n'
            last = b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\n'
            self._answer(200, chunk + chunk + last + b"data: [DONE]\n\n", "text/event-stream")

        def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_server_without_vllms_metrics_is_measured_and_that_is_said(probe: Here) -> None:
    with plain_server() as url:
        ended = probe.run("probe", "--url", url, *load("--users", "1", "--slo", PATIENT, "--requests", "20"))
    assert ended.code == 3
    assert "no vLLM metrics" in ended.output
    report = report_of(probe.directory)
    assert report["server_metrics"] is False
    assert report["levels"][0]["requests"] > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--url", "127.0.0.1:8000"), "http://127.0.0.1:8000"),
        (("--url", "http://h", "--ladder", "8"), "write it like 1..64"),
        (("--url", "http://h", "--ladder", "8..4"), "write it like 1..64"),
        (("--url", "http://h", "--slo", "tpot=fast"), "is not a duration"),
        (("--url", "http://h", "--slo", "p99=1s"), "write ttft=500ms"),
        (("--url", "http://h", "--slo", ","), "name a target"),
        (("--url", "http://h", "--ladder", "1..70000"), "1 to 65536 users"),
        (("--url", "http://h:99999"), "http://127.0.0.1:8000"),
        (("--url", "http://h:port"), "http://127.0.0.1:8000"),
        (("--url", "http://h", "--slo", "ttft=0s"), "--slo ttft: '0s' is not above 0"),
        (("--url", "http://h", "--slo", ","), "such as ttft=500ms"),
        (("--url", "http://h", "--output", "r.pdf"), "r.pdf"),
        (("--url", "http://h", "--output", "no/r.csv"), "no/r.csv"),
        (("--url", "http://h", "--output", "folder.json"), "folder.json is a folder"),
        (("--url", "http://no-such-host.invalid", "--users", "1"), "no-such-host.invalid"),
    ],
)
def test_wrong_usage_is_told(words: tuple[str, ...], told: str, probe: Here) -> None:
    (probe.directory / "folder.json").mkdir()
    ended = probe.run("probe", *words)
    assert ended.code == 2
    assert told in ended.output
