from __future__ import annotations

from kneekeeper.api.stage import StageSpec, StageState
from kneekeeper.load.sources import Sources, StageInputs
from kneekeeper.load.stage_runner import StageRunner
from tests.unit.test_load_evidence import spec


class BrokenSources(Sources):
    def read_inputs(self, spec: StageSpec) -> StageInputs:
        raise ZeroDivisionError("a secret")


async def test_a_failure_that_nobody_foresaw_ends_the_stage_and_is_no_verdict():
    runner = StageRunner(spec(), sources=BrokenSources())
    await runner.run()
    assert runner.over
    status = runner.status()
    assert (status.state, status.reason) == (StageState.INVALID, "AgentFailed")
    assert "ZeroDivisionError" in status.message
    assert "secret" not in status.message
