"""How well the client did, and whether a stage that it drove says anything of the server.

A late client adds its own delay to what it measures, so its limits are relative to what they can disturb: the
smallest of the targets, each as the time in which it is measured (TPOT is measured over a whole answer, into
which one late stamp enters divided by the number of tokens), or the measured P50 TTFT if that is larger or
there is no target.

The floors are what a well-behaved process meets on a busy node with two cores; below them nothing is called
Invalid. The P99 of the loop lag covers 99% of the *time*, not of the timer's calls: a process that stood still
for a second was late in all of that second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.offered_load import Closed
from kneekeeper.api.stage import Evidence, Outcome, Slo, StageSpec
from kneekeeper.domain.workload import Floats
from kneekeeper.load.progress import Progress
from kneekeeper.load.worker import TICK_S

SEND_LAG_SHARE = 0.10
SEND_LAG_FLOOR_S = 0.010
"""P99 of the actual minus the intended send time: it is in every latency, which counts from the intended time."""

LOOP_LAG_SHARE = 0.10
LOOP_LAG_FLOOR_S = 0.010
"""P99 of how late the worker was woken: tokens that came meanwhile are stamped so much too late."""

MAX_CPU_SHARE = 0.80
"""Beyond it the worker has no room for bursts."""

MIN_ACHIEVED = 0.99
"""Sent over planned. Fewer, and the server was never offered the rate that the stage is named after."""

MOST_CUT_ANSWERS = 0.01
"""Share of the good answers that may be shorter than was asked for: as many as no P99 sees."""


@dataclass(frozen=True)
class Fault:
    """What makes a stage Invalid: a reason for machines, a message with the next step for people."""

    reason: str
    message: str


def weighted_lags(lags_s: Floats) -> Floats:
    """The lags that a timer that never skips would have seen: one of L also stands for L-20 ms, L-40 ms, …

    The correction that HdrHistogram makes for coordinated omission.
    """
    steps = np.maximum(np.ceil(lags_s / TICK_S), 1).astype(np.int64)
    within = np.arange(int(steps.sum())) - np.repeat(np.cumsum(steps) - steps, steps)
    return np.repeat(lags_s, steps) - within * TICK_S


def _p99(values: Floats) -> float:
    return float(np.quantile(values, 0.99)) if values.size else 0.0


def measure(progress: Progress, planned: int) -> Evidence:
    """The evidence of a stage so far. `planned` is how many requests were due."""
    elapsed_s = progress.elapsed_s
    return Evidence(
        send_lag_p99_s=max(0.0, _p99(progress.column("sent_s") - progress.column("intended_s"))),
        loop_lag_p99_s=max(_p99(weighted_lags(lags_s)) for lags_s in progress.lags_s()),
        cpu_share=progress.cpu_s / elapsed_s if elapsed_s > 0 else 0.0,
        achieved_over_offered=progress.sent / planned if planned else 1.0,
    )


def reference_s(slo: Slo, progress: Progress) -> float:
    """The time that the client's delays are compared with (see the module's docstring); 0 when nothing is known."""
    ok = progress.ok()
    if not ok.any():
        return min((target for target in (slo.ttft_s, slo.e2e_s) if target is not None), default=0.0)
    ttft_s = (progress.column("first_s") - progress.column("intended_s"))[ok]
    gaps = float(np.median(progress.column("output_tokens")[ok])) - 1
    targets = [target for target in (slo.ttft_s, slo.e2e_s) if target is not None]
    if slo.tpot_s is not None and gaps >= 1:
        targets.append(slo.tpot_s * gaps)
    return max(min(targets, default=0.0), float(np.median(ttft_s)))


def fault(evidence: Evidence, spec: StageSpec, reference: float) -> Fault | None:
    """What is wrong with the client; None when the stage can be judged. `reference` is that of `reference_s`."""
    send_limit_s = max(SEND_LAG_FLOOR_S, SEND_LAG_SHARE * reference)
    loop_limit_s = max(LOOP_LAG_FLOOR_S, LOOP_LAG_SHARE * reference)
    more = "Give the load agent more CPU, or a node that is less busy."
    if not isinstance(spec.arrivals, Closed) and evidence.achieved_over_offered < MIN_ACHIEVED:
        share = math.floor(1000 * evidence.achieved_over_offered) / 10
        return Fault("ClientTooSlow", f"Client too slow: only {share:g}% of the planned requests were sent. {more}")
    if evidence.send_lag_p99_s > send_limit_s:
        late = f"P99 send delay {1000 * evidence.send_lag_p99_s:.1f} ms, {1000 * send_limit_s:.1f} ms are allowed"
        return Fault("ClientTooSlow", f"Client too slow: {late}. {more}")
    if evidence.loop_lag_p99_s > loop_limit_s:
        late = f"woken up to {1000 * evidence.loop_lag_p99_s:.1f} ms late, {1000 * loop_limit_s:.1f} ms are allowed"
        return Fault("ClientStarved", f"Client starved: {late} (P99 over time). {more}")
    if evidence.cpu_share > MAX_CPU_SHARE:
        used = f"it used {evidence.cpu_share:.0%} of a core, {MAX_CPU_SHARE:.0%} are allowed"
        return Fault("ClientBusy", f"Client busy: {used}. Spread the load over more agents.")
    return None


def answers_fault(progress: Progress) -> Fault | None:
    """Why the server was not under the load that was ordered; None where it was. Its own count of tokens says so."""
    good, cut = progress.count(Outcome.OK), progress.cut_answers
    if cut <= MOST_CUT_ANSWERS * good:
        return None
    return Fault(
        "AnswersCutShort",
        f"{cut} of {good} answers ended before they had as many tokens as were asked for, so the load was lighter than "
        "the declared one. Look for a stop sequence, a limit of answers in a proxy, or a server that does not know "
        "min_tokens and ignore_eos.",
    )
