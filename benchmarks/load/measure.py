"""One level by one client, held against the truth."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.cpu import CpuMeter
from benchmarks.load.levels import Client, ClientFailed, Level, Quantiles
from benchmarks.load.truth import Plan, Truth, TruthServer

_REPOSITORY = Path(__file__).parents[2]
_START_LIMIT_S = 120.0
"""Importing a client takes up to half a minute."""


@dataclass(frozen=True)
class Measured:
    """How far a client was off: what it reports minus what happened, and how much it offered and used."""

    error_ms: Quantiles
    truth_ms: Quantiles
    achieved: float
    """The offered rate over the asked one; in a closed loop the mean number of busy streams over that asked for."""
    cpu: float
    """Cores, from the first request to the last answer."""
    verdict: str


def measure(client: Client, level: Level, plan: Plan, server: TruthServer) -> Measured:
    """Run the client once. Raises ClientFailed."""
    server.set_plan(plan)
    request_s = (plan.ttft_ms + plan.tpot_ms * (level.output_tokens - 1)) / 1000
    limit_s = _START_LIMIT_S + 4 * request_s * max(1.0, level.requests / (level.streams or level.rate * request_s))
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        scratch = Path(folder)
        meter = _run(client.command(level, server.port, scratch), scratch, limit_s)
        report = client.report(level, scratch)
    truth = server.truth()
    if report.completed < level.requests:
        raise ClientFailed(f"{report.completed} of {level.requests} requests were completed")
    real = Quantiles.of(truth.ttft_ms, truth.tpot_ms)
    return Measured(
        error_ms=report.quantiles.minus(real),
        truth_ms=real,
        achieved=achieved(truth, level, request_s),
        cpu=meter.share(truth.arrived_s.min(), truth.last_s.max()),
        verdict=report.verdict,
    )


def achieved(truth: Truth, level: Level, request_s: float) -> float:
    """See `Measured.achieved`. The first and the last requests of a closed loop, when not all streams are busy, are
    left out."""
    begins, ends = float(truth.arrived_s.min()), float(truth.arrived_s.max())
    if level.streams:
        return truth.mean_concurrency(min(begins + request_s, ends - request_s / 10), ends) / level.streams
    return (truth.arrived_s.size - 1) / (ends - begins) / level.rate


def _run(command: list[str], scratch: Path, limit_s: float) -> CpuMeter:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "AIPERF_"))}
    # Some clients look up a model's name in a hub before they believe the tokenizer that they were given.
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1", "HOME": str(scratch)}
    environment["PYTHONPATH"] = os.pathsep.join([str(_REPOSITORY), str(_REPOSITORY / "operator")])
    with (scratch / "said").open("w+b") as said:
        process = subprocess.Popen(
            command,
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        meter = CpuMeter(process.pid)
        meter.start()
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired as late:
            raise ClientFailed(f"no end within {limit_s:.0f} s; last words: {_tail(scratch)}") from late
        finally:
            meter.stop()
            _end_group(process)
    if code != 0:
        raise ClientFailed(f"ended with {code}; last words: {_tail(scratch)}")
    return meter


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Nothing that the client started outlives its run."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def _tail(scratch: Path) -> str:
    return (scratch / "said").read_text(encoding="utf-8", errors="replace").strip()[-600:]
