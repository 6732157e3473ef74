"""Shows that the scenario separates its two settings on this machine: bad, good, bad, good.

Interleaved, because the speed of a shared machine drifts: a difference that is there in both rounds is
not drift. One server at a time; the client has the other core.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from e2e.realvllm import bench_client, scenario
from e2e.realvllm.bench_client import BenchResult
from e2e.realvllm.environment import RealVllm
from e2e.realvllm.server import EngineSettings, running

FRACTIONS_OF_CAPACITY = (scenario.CALIBRATION_FRACTION, 0.7)
_ROUNDS = 2


@dataclass(frozen=True)
class StudyRow:
    """One run of the judge against one server."""

    settings: EngineSettings
    result: BenchResult

    def __str__(self) -> str:
        seqs, tokens, seen = self.settings.max_num_seqs, self.settings.max_num_batched_tokens, self.result
        return (
            f"| {seqs}/{tokens} | {seen.offered_rps:.2f} | {seen.achieved_rps:.2f} | {seen.p50_ttft_ms:.0f} |"
            f" {seen.p99_ttft_ms:.0f} | {seen.p50_tpot_ms:.1f} | {seen.p99_tpot_ms:.1f} | {seen.failed} |"
        )


TABLE_HEAD = (
    "| seqs/tokens | offered r/s | achieved | P50 TTFT ms | P99 TTFT | P50 TPOT ms | P99 TPOT | failed |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def separate(engine: RealVllm, *, seed: int) -> Iterator[StudyRow]:
    """Run both settings twice, in turn, at fractions of the capacity that BAD shows first.

    Takes about ten minutes on two idle cores. Every run has a seed of its own, counted up from `seed`.
    """
    capacity_rps: float | None = None
    for settings in (scenario.BAD, scenario.GOOD) * _ROUNDS:
        with running(engine, settings) as server:
            bench_client.run(engine, server.url, scenario.warm_up(), seed=seed)
            burst = bench_client.run(engine, server.url, scenario.burst(), seed=seed + 1)
            yield StudyRow(settings, burst)
            capacity_rps = capacity_rps or burst.achieved_rps
            seed += 2
            for fraction in FRACTIONS_OF_CAPACITY:
                load = scenario.judged(round(fraction * capacity_rps, 2))
                yield StudyRow(settings, bench_client.run(engine, server.url, load, seed=seed))
                seed += 1
