"""`python -m benchmarks.grid`: what `kneekeeper tune` chose on real vLLM (CPU), against a small exhaustive grid.

The targets come from a calibration of the ceiling in the same run. The grid is measured with the same client on one
engine whose limits the live-tuning plugin changes, so that its settings can take turns: the speed of a shared machine
drifts, and settings measured minutes apart do not compare. A setting's capacity is the highest rate at which at most
1% of the requests miss a target, bisected; each pass over the grid halves the range of every setting.
The last line of output is one JSON object. Ends with 1 when the choice reaches less than 90% of the best capacity.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.realvllm import bench_client, scenario
from e2e.realvllm.environment import VLLM_VERSION, RealVllm, prepare
from e2e.realvllm.live_changes import tuned_server
from e2e.realvllm.scenario import OUTPUT_TOKENS, PROMPT_TOKENS, LatencyTargets
from e2e.realvllm.server import ENVIRONMENT, SERVED_MODEL_NAME, EngineSettings, command, free_port, running
from kneekeeper.api.offered_load import Closed, Open, Uniform
from kneekeeper.api.stage import Limits, Slo, StageSpec, Target
from kneekeeper.domain.samples import StageData
from kneekeeper.livetune.limits import Limits as EngineLimits
from kneekeeper.load.live_limits import LiveLimits
from kneekeeper.load.stage_runner import StageRunner

TARGET = Path(__file__).parent.parent / "docs/results/grid.md"
CEILING = EngineLimits(max_num_seqs=64, max_num_batched_tokens=8192)
SEQUENCES = (2, 8, 64)
BUDGETS = (256, 1024, 8192)
PASSES = 4
REQUESTS = 200
"""Of a stage: two may miss."""
MISSES = 0.01
LOWEST, HIGHEST = 0.4, 1.1
"""Shares of the burst capacity between which a setting's capacity is sought."""
LEAST_SHARE = 0.90
_MODEL_LENGTH_TOKENS = 2048


@dataclass
class Point:
    """A setting and what is known of its capacity, in requests/s: it holds `low` and breaks `high`."""

    limits: EngineLimits
    low: float
    high: float
    measured_s: float = 0.0
    held: bool = False
    """Whether any rate was seen to hold."""

    @property
    def capacity(self) -> float:
        return (self.low * self.high) ** 0.5 if self.held else 0.0


@dataclass(frozen=True)
class Tuned:
    """What the product found, and what it cost."""

    limits: EngineLimits
    promised: float
    starts: int
    elapsed_s: float


def main() -> int:
    """0 when the choice is within 10% of the best."""
    argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__).parse_args()
    engine = prepare()
    targets, capacity = _calibrate(engine)
    print(f"Targets: P99 TTFT {targets.p99_ttft_ms} ms, P99 TPOT {targets.p99_tpot_ms} ms.", flush=True)
    tuned = _tune(engine, targets)
    print(f"{_name(tuned.limits)} was chosen, {tuned.promised:.2f} requests/s promised.", flush=True)
    settings = dict.fromkeys([EngineLimits(s, b) for s in SEQUENCES for b in BUDGETS] + [tuned.limits])
    points = [Point(limits, LOWEST * capacity, HIGHEST * capacity) for limits in settings]
    start_s = _measure(engine, targets, points)
    chosen = next(point for point in points if point.limits == tuned.limits)
    best = max(points, key=lambda point: point.capacity)
    share = chosen.capacity / best.capacity if best.capacity else 0.0
    grid_s = sum(point.measured_s + start_s for point in points if point is not chosen)
    page = list(_page(targets, tuned, points, share, grid_s))
    print("\n".join(page))
    TARGET.write_text("\n".join(page) + "\n")
    numbers = {
        "chosen": _name(tuned.limits),
        "best": _name(best.limits),
        "capacity_share": round(share, 3),
        "engine_starts": tuned.starts,
        "tune_minutes": round(tuned.elapsed_s / 60, 1),
        "grid_minutes": round(grid_s / 60, 1),
    }
    print(json.dumps(numbers))
    return 0 if share >= LEAST_SHARE else 1


def _calibrate(engine: RealVllm) -> tuple[LatencyTargets, float]:
    """Targets from the ceiling's own P99s, and its capacity under a burst."""
    settings = EngineSettings(CEILING.max_num_seqs, CEILING.max_num_batched_tokens)
    with running(engine, settings) as server:
        bench_client.run(engine, server.url, scenario.warm_up(), seed=1)
        capacity = bench_client.run(engine, server.url, scenario.burst(), seed=2).achieved_rps
        load = scenario.judged(round(scenario.CALIBRATION_FRACTION * capacity, 2))
        runs = [bench_client.run(engine, server.url, load, seed=10 + number) for number in range(2)]
    return scenario.targets_from(runs), capacity


def _tune(engine: RealVllm, targets: LatencyTargets) -> Tuned:
    """The product's own command. Raises SystemExit when it certifies nothing."""
    port = free_port()
    settings = EngineSettings(CEILING.max_num_seqs, CEILING.max_num_batched_tokens)
    with tempfile.TemporaryDirectory() as folder:
        workload, report = Path(folder) / "workload.yaml", Path(folder) / "report.json"
        workload.write_text(
            json.dumps({"promptTokens": _lengths(PROMPT_TOKENS), "outputTokens": _lengths(OUTPUT_TOKENS)})
        )
        began_s = time.monotonic()
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "kneekeeper.cli.main", "tune"),
                *("--ttft", f"{targets.p99_ttft_ms}ms", "--tpot", f"{targets.p99_tpot_ms}ms"),
                *("--workload", str(workload), "--report", str(report), "--state", f"{folder}/state"),
                *("--bounds", f"seqs=2..{CEILING.max_num_seqs},tokens=64..{CEILING.max_num_batched_tokens}"),
                *("--", *command(engine, settings, port=port)),
            ],
            env={**os.environ, **ENVIRONMENT},
        )
        if ended.returncode:
            raise SystemExit(f"kneekeeper tune ended with {ended.returncode}; its output above says why")
        found: dict[str, Any] = json.loads(report.read_text())
    choice = found["choice"]
    return Tuned(
        limits=EngineLimits(choice["max_num_seqs"], choice["max_num_batched_tokens"]),
        promised=choice["requests_per_second"],
        starts=found["engine_starts"],
        elapsed_s=time.monotonic() - began_s,
    )


def _lengths(bounds: tuple[int, int]) -> dict[str, Any]:
    return {"distribution": "Uniform", "min": bounds[0], "max": bounds[1]}


@contextmanager
def _engine(engine: RealVllm, token: str) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        server = tuned_server(engine, Path(folder), token, start=CEILING, max_model_len_tokens=_MODEL_LENGTH_TOKENS)
        with server as (started, channel):
            yield started.url, channel


def _measure(engine: RealVllm, targets: LatencyTargets, points: Sequence[Point]) -> float:
    """Narrow every point's capacity, in turn; the seconds that one engine start takes."""
    token = secrets.token_urlsafe()
    began_s = time.monotonic()
    with _engine(engine, token) as (url, channel):
        start_s = time.monotonic() - began_s
        asyncio.run(_passes(url, channel, token, targets, points))
    return start_s


async def _passes(url: str, channel: str, token: str, targets: LatencyTargets, points: Sequence[Point]) -> None:
    seed = 1000
    async with LiveLimits(channel, token) as live, asyncio.TaskGroup() as tasks:
        beat = tasks.create_task(_keep_alive(live))
        for number in range(PASSES):
            for point in points:
                seed += 1
                await live.change(point.limits)
                began_s = time.monotonic()
                rate = (point.low * point.high) ** 0.5
                share = await _miss_share(url, targets, rate, seed)
                point.measured_s += time.monotonic() - began_s
                if share <= MISSES:
                    point.low, point.held = rate, True
                else:
                    point.high = rate
                print(
                    f"pass {number + 1}, {_name(point.limits)}: {share:.1%} miss at {rate:.2f} requests/s", flush=True
                )
        beat.cancel()


async def _keep_alive(live: LiveLimits) -> None:
    """Without a heartbeat the engine falls back to its start values."""
    while True:
        await asyncio.sleep(10)
        await live.read()


async def _miss_share(url: str, targets: LatencyTargets, rate: float, seed: int) -> float:
    """Of the requests of one open-loop stage; the backlog of the stage before it is left to run out first."""
    await _stage(url, Closed(users=1), 5, seed + 100_000)
    data = await _stage(url, Open(rate=rate), REQUESTS, seed)
    return float(data.misses(Slo(ttft_s=targets.p99_ttft_ms / 1000, tpot_s=targets.p99_tpot_ms / 1000)).mean())


async def _stage(url: str, arrivals: Open | Closed, requests: int, seed: int) -> StageData:
    address = urlsplit(url)
    runner = StageRunner(
        StageSpec(
            id="stage",
            target=Target(host=address.hostname or "", port=address.port or 0, model=SERVED_MODEL_NAME),
            prompt_tokens=Uniform(low=PROMPT_TOKENS[0], high=PROMPT_TOKENS[1]),
            output_tokens=Uniform(low=OUTPUT_TOKENS[0], high=OUTPUT_TOKENS[1]),
            arrivals=arrivals,
            limits=Limits(min_requests=requests, max_requests=requests, max_duration_s=300.0),
            seed=seed,
        )
    )
    await runner.run()
    return StageData.from_wire(runner.samples()).after_warmup()


def _name(limits: EngineLimits) -> str:
    return f"{limits.max_num_seqs}/{limits.max_num_batched_tokens}"


def _page(targets: LatencyTargets, tuned: Tuned, points: Sequence[Point], share: float, grid_s: float) -> Iterator[str]:
    yield "# The choice against a grid, on real vLLM"
    yield ""
    day = datetime.now(UTC).date().isoformat()
    yield f"Written by `make bench-grid` on {day}: vLLM {VLLM_VERSION} on two shared cores without a GPU."
    yield f"Targets: P99 TTFT {targets.p99_ttft_ms} ms, P99 TPOT {targets.p99_tpot_ms} ms, from the ceiling's own P99s"
    yield "in the same run."
    yield ""
    yield f"`kneekeeper tune` chose {_name(tuned.limits)} with {tuned.starts} engine starts in"
    yield f"{tuned.elapsed_s / 60:.1f} minutes and promises {tuned.promised:.2f} requests/s. That setting carries"
    yield f"**{share:.0%}** of the best capacity. The grid took {grid_s / 60:.1f} minutes, a start for each setting"
    yield f"counted; its settings took turns, {PASSES} times, {REQUESTS} requests each time."
    yield ""
    yield "| max_num_seqs/max_num_batched_tokens | capacity, requests/s | between | |"
    yield "| --- | --- | --- | --- |"
    for point in sorted(points, key=lambda point: -point.capacity):
        mark = "chosen" if point.limits == tuned.limits else ""
        yield f"| {_name(point.limits)} | {point.capacity:.2f} | {point.low:.2f} to {point.high:.2f} | {mark} |"


if __name__ == "__main__":
    sys.exit(main())
