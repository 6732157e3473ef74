"""No answer that can hold its targets is given up, however long it is."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Fixed
from kneekeeper.api.stage import Slo
from kneekeeper.domain.patience import LEAST_PATIENCE_S, patience_s
from tests.unit.plan.world import PROFILE_SPEC, World

SECONDS = st.one_of(st.none(), st.floats(0.01, 60))


@given(ttft_s=SECONDS, tpot_s=SECONDS, e2e_s=SECONDS, tokens=st.integers(1, 4000))
def test_an_answer_that_holds_its_targets_is_never_given_up(
    ttft_s: float | None, tpot_s: float | None, e2e_s: float | None, tokens: int
) -> None:
    waited_s = patience_s(Slo(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=e2e_s), Fixed(value=tokens))
    longest_s = (ttft_s or 0.0) + tokens * (tpot_s or 0.1)
    assert waited_s > (longest_s if e2e_s is None else e2e_s)


def test_short_answers_are_waited_for_as_ever():
    assert patience_s(Slo(ttft_s=1.0, tpot_s=0.05), Fixed(value=200)) == LEAST_PATIENCE_S


@pytest.mark.parametrize("mixed", [False, True])
def test_every_stage_waits_for_the_longest_answers_of_its_load(mixed: bool):
    spec = copy.deepcopy(PROFILE_SPEC)
    long = {"promptTokens": {"mean": 100, "p99": 300}, "outputTokens": {"mean": 900, "p99": 3000, "max": 4000}}
    slo: dict[str, Any] = {"p99TTFT": "10s", "p99TPOT": "100ms"}
    spec["slo"] = slo
    if mixed:
        short = {**long, "name": "short", "weightPercent": 90, "outputTokens": {"mean": 20, "p99": 40, "max": 60}}
        spec["workload"] = {"classes": [{**long, "name": "long", "weightPercent": 10, "slo": slo}, short]}
    else:
        spec["workload"] = {**spec["workload"], **long}
    world = World(spec=spec)
    world.run_until(lambda world: any(ordered.id.startswith("ramp") for ordered in world.ordered))
    ramp = next(ordered for ordered in world.ordered if ordered.id.startswith("ramp"))
    assert ramp.limits.request_timeout_s == pytest.approx(2 * (10 + 4000 * 0.1))
