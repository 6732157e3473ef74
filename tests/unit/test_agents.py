"""One agent is enough for nearly every run; more only where one would fall behind."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper.api.offered_load import Arrivals, Closed, Open, Replay
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.stage import MOST_AGENTS
from kneekeeper.domain.agents import agents_for, agents_of
from tests.unit.kube_objects import PROFILE_SPEC, tuning_run


def plan(highest: int, **spec: Any) -> RunPlan:
    made = tuning_run(**spec).status.plan
    assert made is not None
    return made.with_changes(
        bounds=made.bounds.with_changes(highest=made.bounds.highest.with_changes(max_num_seqs=highest))
    )


@pytest.mark.parametrize(
    ("highest", "concurrency", "agents"),
    [(256, 512, 1), (4096, 512, 1), (4096, 1024, 1), (4096, 1025, 2), (1500, 4096, 2), (4096, 4096, 4)],
)
def test_a_run_has_as_many_agents_as_its_largest_closed_loop_needs(highest: int, concurrency: int, agents: int):
    spec = {"probe": {"ladder": {"maxConcurrency": concurrency}}}
    assert agents_of(plan(highest, **spec)) == agents


def test_declared_users_count_too():
    workload = PROFILE_SPEC["workload"] | {"arrivals": {"process": "Closed", "users": 3000}}
    assert agents_of(plan(256, workload=workload)) == 3
    workload = PROFILE_SPEC["workload"] | {"arrivals": {"process": "Closed", "users": 100_000}}
    assert agents_of(plan(256, workload=workload)) == MOST_AGENTS


@pytest.mark.parametrize(
    ("arrivals", "agents"),
    [
        (Closed(users=8), 1),
        (Closed(users=5000), 4),
        (Closed(users=2000), 2),
        (Open(rate=20.0), 1),
        (Open(rate=900.0), 3),
        (Replay(rate=500.0), 2),
        (Replay(speed=1.0), 4),
    ],
)
def test_a_stage_is_sent_by_no_more_agents_than_it_needs(arrivals: Arrivals, agents: int):
    assert agents_for(arrivals, most=4) == agents
    assert agents_for(arrivals, most=1) == 1
