"""The workload and the two settings that the end-to-end test compares on real vLLM.

Prompts are long (400 to 1,200 tokens) and answers short (8 to 16). With a large token budget vLLM puts
whole prompts, often several, into one step, and every sequence that is decoding waits for it; a short
answer has few gaps to spread such a wait over. So P99 TPOT grows with the rate under BAD, while under
GOOD no step holds more than 256 tokens, and P99 TPOT stays near the time of one such step up to
saturation. The engine does the same work either way: TTFT and capacity hardly differ, so nothing but
the limits explains a difference, and TTFT has room on both sides.

A step of the tiny model costs about 4.5 ms + 0.27 ms a decoding sequence + 0.1 ms a prompt token on one
AVX-512 core. A simulation with that law gives P99 TPOT in ms (P99 TTFT of all but 16/128 is within 30%):

| requests/s, of about 10 | 256/8192 | 8/8192 | 4/8192 | 16/1024 | 16/512 | 16/256 | 16/128 |
| 5 | 71 | 61 | 39 | 67 | 54 | 31 | 18 |
| 7 | 124 | 71 | 41 | 101 | 57 | 31 | 18 |
| 9 | 267 | 80 | 42 | 108 | 57 | 31 | 18 |

So there is more than one good pair: few sequences with any budget, or any number with a small one.
Speeds differ between machines and drift, so rates and targets are not constants: they are fractions of
what the same server did a minute before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from e2e.realvllm.bench_client import BenchLoad, BenchResult
from e2e.realvllm.server import EngineSettings

PROMPT_TOKENS = (400, 1200)
"""Evenly drawn; `Uniform` with these bounds in a profile."""
OUTPUT_TOKENS = (8, 16)

BAD = EngineSettings(max_num_seqs=256, max_num_batched_tokens=8192)
"""What an H100 gets by default for the budget, and a usual value for the sequences."""
GOOD = EngineSettings(max_num_seqs=16, max_num_batched_tokens=256)
"""One good pair, to show that there is one; the product is free to find another."""

# More than any budget holds, at once: the engine works at its capacity until the last one is done.
_BURST_REQUESTS = 60
_BURST_RATE_RPS = 1000.0
# P99 of 300 is the third-worst request: one hiccup of the machine alone does not decide it.
JUDGED_REQUESTS = 300
CALIBRATION_FRACTION = 0.6
"""Of the capacity that a burst shows, with full batches. An open loop on two cores that client and API server share
ends well below it; a certified rate promises about as much after the division by 1.2."""
CALIBRATION_STEP = 0.85
"""The next calibration's fraction over the last one's, where the server did not keep up."""
_TPOT_TARGET_FRACTION = 0.7
_TTFT_TARGET_FACTOR = 4.0
_CALIBRATION_SPREAD = 1.6
"""P99 TPOT of the slower run over that of the faster one: P99s of 300 requests differ by a third by chance."""
_KEPT_UP = 0.97
"""Of the offered rate."""


@dataclass(frozen=True)
class LatencyTargets:
    """The P99 targets of the test's profile, in whole milliseconds."""

    p99_ttft_ms: int
    p99_tpot_ms: int

    def are_met_by(self, result: BenchResult) -> bool:
        """Whether both hold and no request failed (a failed request is in no percentile)."""
        return result.failed == 0 and result.p99_ttft_ms <= self.p99_ttft_ms and result.p99_tpot_ms <= self.p99_tpot_ms


def warm_up() -> BenchLoad:
    """A few requests before anything is measured: the first ones of a server are slow."""
    return BenchLoad(4.0, 8, PROMPT_TOKENS, OUTPUT_TOKENS)


def burst() -> BenchLoad:
    """All at once: `achieved_rps` of the result is the engine's capacity in requests/s."""
    return BenchLoad(_BURST_RATE_RPS, _BURST_REQUESTS, PROMPT_TOKENS, OUTPUT_TOKENS)


def judged(rate_rps: float) -> BenchLoad:
    """Enough requests at one rate to judge P99."""
    return BenchLoad(rate_rps, JUDGED_REQUESTS, PROMPT_TOKENS, OUTPUT_TOKENS)


def agree(bad_runs: Sequence[BenchResult]) -> bool:
    """Whether these runs of one load show one speed, at which the server kept up."""
    tpots_ms = [run.p99_tpot_ms for run in bad_runs]
    return keeps_up(bad_runs) and max(tpots_ms) <= _CALIBRATION_SPREAD * min(tpots_ms)


def keeps_up(runs: Sequence[BenchResult]) -> bool:
    """Whether the server answered as fast as it was asked; else its latencies are those of a backlog."""
    return all(run.achieved_rps >= _KEPT_UP * run.offered_rps for run in runs)


def targets_from(bad_runs: Sequence[BenchResult]) -> LatencyTargets:
    """Targets from what BAD did at CALIBRATION_FRACTION of its capacity; give two runs or more.

    P99 TPOT lies between that of BAD and half of it: BAD still breaks it at a rate a fifth lower, and a good
    pair has slack. P99 TTFT is a bound with room: it is what a small token budget pays with.
    A stall of the machine only ever raises a P99 (to fivefold on a busy node), so the lowest of the runs
    is nearest to the engine's own.
    """
    return LatencyTargets(
        p99_ttft_ms=round(_TTFT_TARGET_FACTOR * min(run.p99_ttft_ms for run in bad_runs)),
        p99_tpot_ms=round(_TPOT_TARGET_FRACTION * min(run.p99_tpot_ms for run in bad_runs)),
    )
