"""The simulated engine as a process: how it starts, fails, ends, and what its log tells of it."""

from __future__ import annotations

import signal
from typing import Any

import httpx
import pytest

from kneekeeper.engine.addresses import default_address
from tests.contract.engine_process import FAST, free_port, launch, running_engine


def test_a_crash_ends_the_process_with_code_1_and_a_cause() -> None:
    process = launch(
        FAST | {"fault": {"after_s": 0.0}}, "serve", "m", "--host", "127.0.0.1", "--port", str(free_port())
    )
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "EngineCore encountered a fatal error" in stderr


def run(hardware: dict[str, Any], *arguments: str) -> tuple[int, str, str]:
    process = launch(hardware, *arguments)
    stdout, stderr = process.communicate(timeout=30)
    return process.returncode, stdout, stderr


@pytest.mark.parametrize(
    ("arguments", "hardware", "code", "message"),
    [
        (("serve", "m", "--no-such-flag"), {}, 2, "error: unrecognized arguments: --no-such-flag"),
        (("--model", "m", "--max-num-seqs", "1K"), {}, 2, "invalid int value: '1K'"),
        (
            ("serve", "m", "--max-num-batched-tokens", "8", "--max-num-seqs", "9"),
            {},
            1,
            "max_num_batched_tokens (8) must be greater than or equal to max_num_seqs (9).",
        ),
        (("serve", "m"), {"sequence_limit": 100}, 1, "exceeds available Mamba cache blocks (100)"),
        (("serve", "m"), {"gpu": {"memory_gib": 6}}, 1, "torch.OutOfMemoryError: CUDA out of memory."),
        (("serve", "m"), {"gpu": {"memory_gib": "much"}}, 1, "KNEEKEEPER_SIM"),
    ],
)
def test_a_start_that_fails_says_why_and_ends_with_vllms_code(
    arguments: tuple[str, ...], hardware: dict[str, Any], code: int, message: str
) -> None:
    returncode, _, stderr = run(FAST | hardware, *arguments, "--port", str(free_port()))
    assert returncode == code
    assert message in stderr


def test_the_port_opens_only_when_the_start_is_over_and_sigterm_ends_it_at_any_time() -> None:
    port = free_port()
    process = launch({"startup_s": 3600}, "serve", "m", "--host", "127.0.0.1", "--port", str(port))
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    assert any("Loading weights" in line for line in lines)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/health")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 0


def test_sigterm_cuts_streams_off_and_ends_with_code_0() -> None:
    with running_engine(FAST, "serve", "m") as engine:
        body = {"prompt": [1], "max_tokens": 8000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{engine.url}/v1/completions", json=body) as answer:
            chunks = answer.iter_raw()
            assert next(chunks)
            engine.process.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.TransportError):
                for _ in chunks:
                    pass
        assert engine.process.wait(timeout=10) == 0


def test_the_log_names_version_and_arguments_without_secrets() -> None:
    process = launch(FAST, "serve", "m", "--api-key", "secret", "--max-num-seqs", "8", "--port", str(free_port()))
    assert process.stdout is not None
    log = ""
    for line in process.stdout:
        log += line
        if "startup complete" in line:
            break
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=10)
    assert "vLLM API server version 0.32.0" in log
    assert "'max_num_seqs': 8" in log
    assert "secret" not in log + rest + errors


def test_only_in_a_pod_it_listens_beyond_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert default_address({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}) == "0.0.0.0"
    port = free_port()
    process = launch(FAST, "serve", "m", "--port", str(port))
    try:
        assert process.stdout is not None
        assert any(f"on http://127.0.0.1:{port}" in line for line in iter(process.stdout.readline, ""))
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.2:{port}/health")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
