"""Long scenarios on two nodes: what others do to a workload while kneekeeper works on it (`make e2e-wide`).

What they show does not depend on how fast the machine is, so their profiles ask for little, measure shortly, and take
controls that differ for what they are: other work on the same two cores. Their engines take slow steps, which a busy
machine hardly lengthens, and answer many short requests at a time: a certification takes more than a thousand of them.
"""

from __future__ import annotations

from typing import Any

from e2e.lab import Lab
from e2e.runs import quick
from e2e.simulated import Simulated

HARDWARE: dict[str, Any] = {"step_time": {"base_ms": 60.0, "per_sequence_ms": 0.5, "per_prefill_token_ms": 0.02}}
"""Steps that last much longer than a busy machine takes to wake a process."""

LONGEST_RUN_S = 900.0
"""A run takes four minutes of a machine that does nothing else."""

LADDER: dict[str, Any] = {
    "maxConcurrency": 32,
    "recovery": "500ms",
    "controlTolerancePercent": 100,
    "maxStageDuration": "30s",
}
SLACK: dict[str, Any] = {
    "workload": {
        "promptTokens": {"distribution": "Uniform", "min": 50, "max": 150},
        "outputTokens": {"distribution": "Uniform", "min": 3, "max": 7},
    },
    "slo": {"p99TTFT": "1s", "p99TPOT": "400ms"},
    "parameters": {"maxNumSeqs": {"min": 2, "max": 32}, "maxNumBatchedTokens": {"min": 512, "max": 2048}},
    "probe": {"allow": ["Clone"], "ladder": LADDER},
}
"""Fields of a profile for `e2e.runs.quick_profile`."""

BORROWING = SLACK | {
    "probe": {"allow": ["BorrowReplica"], "ladder": LADDER},
    "updatePolicy": {"mode": "Recommend"},
}
"""The same for a run that borrows a replica."""


def steady(lab: Lab, **changes: Any) -> Simulated:
    """`e2e.runs.quick` with slow steps; `hardware` adds to them."""
    return quick(lab, **(changes | {"hardware": HARDWARE | changes.get("hardware", {})}))
