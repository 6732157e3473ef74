from datetime import timedelta
from pathlib import Path

import pytest

from kneekeeper.api.run_pods import CloneState
from kneekeeper.api.tuning_run import RunStep
from kneekeeper.local.state import StateError, TuneState, asks_the_same, load, locked, resumed, store
from tests.unit.plan.world import START, at_step

LATER = START + timedelta(days=3)


def state_at(step: RunStep) -> TuneState:
    """The state of a run at this step, as the plan left it."""
    world = at_step(step)
    run = world.last_run
    assert run.status.plan is not None
    return TuneState(
        uid="a" * 32, words=["vllm", "serve", "m"], profile=run.status.plan.profile_spec, status=run.status
    )


def test_a_state_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    state = state_at(RunStep.CERTIFY)
    store(tmp_path, state)
    again = load(tmp_path)
    assert [stage.name for stage in again.status.stages] == [stage.name for stage in state.status.stages]
    assert (again.status.step, again.status.plan, again.words) == (state.status.step, state.status.plan, state.words)
    assert not list(tmp_path.glob("*.partial"))


def test_a_resumed_run_has_one_engine_start_more_and_measures_the_same() -> None:
    state = state_at(RunStep.RAMP)
    again = resumed(state, LATER)
    assert again.status.plan is not None
    assert again.profile.probe.budget.max_restarts == state.profile.probe.budget.max_restarts + 1
    assert again.status.plan.measures_the_same_as(again.profile)
    assert again.status.stages == state.status.stages


def test_a_start_that_was_interrupted_is_waited_for_from_the_resumption_on() -> None:
    state = state_at(RunStep.RAMP)
    clone = state.status.clone
    assert clone is not None
    waiting = state.with_changes(
        status=state.status.with_changes(clone=CloneState(start=clone.start, setting=clone.setting, since=START))
    )
    again = resumed(waiting, LATER).status.clone
    assert again is not None
    assert again.since == LATER


def test_a_run_that_is_over_is_left_as_it_is() -> None:
    world = at_step(RunStep.BASELINE)
    world.settle()
    status = world.last_run.status
    assert status.plan is not None
    state = TuneState(uid="u", words=["vllm"], profile=status.plan.profile_spec, status=status)
    assert resumed(state, LATER) is state


def test_a_run_that_never_began_is_left_as_it_is() -> None:
    state = state_at(RunStep.RAMP).with_changes(status=TuneState.model_fields["status"].default)
    assert resumed(state, LATER) is state


def test_a_stored_run_goes_on_for_the_same_question_whatever_it_may_cost() -> None:
    state = state_at(RunStep.RAMP)
    assert asks_the_same(resumed(state, LATER), state)
    slower = state.profile.with_changes(slo=state.profile.slo.with_changes(p99_ttft=9.0))
    assert not asks_the_same(state, state.with_changes(profile=slower))
    assert not asks_the_same(state, state.with_changes(words=["vllm", "serve", "other"]))


def test_a_folder_without_a_state_or_with_a_broken_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="does not exist"):
        load(tmp_path)
    (tmp_path / "run.json").write_text('{"version": 2}')
    with pytest.raises(StateError, match="Start the run anew"):
        load(tmp_path)


def test_a_folder_is_held_by_one_run(tmp_path: Path) -> None:
    with locked(tmp_path / "new"), pytest.raises(StateError, match="Another kneekeeper"), locked(tmp_path / "new"):
        pass
    with locked(tmp_path / "new"):
        pass


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"words": ["--api-key", "s3cret"], "uid": 5}'])
def test_a_file_that_is_no_run_is_told_in_one_line_without_what_it_holds(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(StateError, match="is no run of this version") as told:
        load(tmp_path)
    assert "\n" not in str(told.value)
    assert "s3cret" not in str(told.value)


def test_a_place_that_cannot_hold_a_state_is_told_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StateError, match=r"cannot hold the run's state: .*Give another --state"),
        locked(tmp_path / "file"),
    ):
        pass
