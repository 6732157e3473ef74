"""How many load agents a run has, and how many of them send a stage.

One is enough for nearly every engine, and simpler to keep alive; a stage has more only where one would fall behind.
"""

from __future__ import annotations

import math

from kneekeeper.api.offered_load import Arrivals, Closed
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.stage import MOST_AGENTS

STREAMS_PER_AGENT = 1024
"""Client and agent took 0.40 cores for 512 streams of 50 tokens a second (docs/results/load.md), and a sending process
may take 0.8 of one (`load.evidence`)."""

REQUESTS_PER_AGENT_S = 400.0
"""Of an open loop, likewise: 0.47 cores for 200 requests a second of 100 tokens."""


def agents_of(plan: RunPlan) -> int:
    """The load agents of a run: as many as its largest closed loop needs."""
    spec = plan.profile_spec
    users = min(spec.probe.ladder.max_concurrency, plan.bounds.highest.max_num_seqs)
    declared = spec.workload.arrivals.users if spec.workload is not None else None
    return _needed(max(users, declared or 0) / STREAMS_PER_AGENT, MOST_AGENTS)


def agents_for(arrivals: Arrivals, most: int) -> int:
    """How many agents send a stage, of the `most` that there are."""
    if isinstance(arrivals, Closed):
        return _needed(arrivals.users / STREAMS_PER_AGENT, most)
    return most if arrivals.rate is None else _needed(arrivals.rate / REQUESTS_PER_AGENT_S, most)


def _needed(agents: float, most: int) -> int:
    return min(most, max(1, math.ceil(agents)))
