"""Which stage comes next: the plan of a quiet machine, repeats, what ends a ramp."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Closed, LogNormal, Open
from kneekeeper.api.stage import NOT_STEADY, Slo
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.control import mark_void, usable
from kneekeeper.domain.ladder import MORE_ROOM, WARM_UP_ROUNDS, LadderEnd, StageOrder, next_stage, next_warm_up
from tests.unit.ladder_play import SETTINGS, Answer, play
from tests.unit.small_server import SmallServer
from tests.unit.stage_builders import CEILING, run_ladder, summary


def names(stages: list[StageSummary]) -> list[str]:
    return [stage.name for stage in stages]


def test_a_quiet_machine_gets_the_plan_of_the_design():
    stages, done = play()
    assert names(stages) == [
        "warm-up-1-1", "warm-up-1-2", "control-1",
        "ramp-1", "ramp-2", "ramp-8", "ramp-16", "ramp-32", "ramp-64", "control-2",
        "prefill-128", "prefill-512", "prefill-1024", "steps-many", "open-1", "control-3",
    ]  # fmt: skip
    assert done.reason == LadderEnd.CEILING


def test_the_same_stages_always_give_the_same_order():
    stages, _ = play()
    for count in range(len(stages)):
        assert next_stage(SETTINGS, stages[:count]) == next_stage(SETTINGS, list(stages[:count]))
        order = next_stage(SETTINGS, stages[:count])
        assert isinstance(order, StageOrder)
        assert order.name == stages[count].name


def test_warm_up_goes_on_until_two_rounds_agree():
    stages, _ = play(lambda order, i: {"p50_ttft": (9.0, 1.0, 0.5, 0.45)[i] if i < 4 else 0.05})
    assert names(stages)[:5] == ["warm-up-1-1", "warm-up-1-2", "warm-up-1-3", "warm-up-1-4", "control-1"]


def test_an_engine_that_never_gets_warm_is_measured_after_five_rounds():
    stages, _ = play(lambda order, i: {"p50_ttft": 2.0**-i})
    assert names(stages)[WARM_UP_ROUNDS - 1 : WARM_UP_ROUNDS + 1] == ["warm-up-1-5", "control-1"]


def test_every_engine_start_is_warmed_up_anew():
    stages, _ = play()
    again = next_warm_up(SETTINGS, stages, 2)
    assert again is not None
    assert again.name == "warm-up-2-1"
    assert next_warm_up(SETTINGS, stages, 1) is None


def test_stages_between_disagreeing_controls_are_repeated_once():
    slow: dict[str, object] = {"output_tokens_per_second": 100.0}
    stages, done = play(lambda order, i: slow if order.name == "control-1" else {})
    levels = ["ramp-1", "ramp-2", "ramp-8", "ramp-16", "ramp-32", "ramp-64"]
    assert names(stages)[3:17] == [*levels, "control-2", *(f"{level}-b" for level in levels), "control-3"]
    assert done.reason == LadderEnd.CEILING


def unsteady(*bases: str) -> Answer:
    """These stages are cut off before they are steady, each time."""
    return lambda order, i: (
        {"ended_by": NOT_STEADY, "message": "Ended: they drift."} if order.name.startswith(bases) else {}
    )


def test_a_level_that_was_cut_off_before_it_was_steady_is_tried_once_more_with_more_room():
    stages, done = play(unsteady("ramp-8"))
    tries = [name for name in names(stages) if name.startswith("ramp-8")]
    assert tries == ["ramp-8", "ramp-8-b"]
    orders = [next_stage(SETTINGS, stages[: names(stages).index(name)]) for name in tries]
    rooms = [order.limits.max_requests for order in orders if isinstance(order, StageOrder)]
    assert rooms[1] == MORE_ROOM * rooms[0]
    assert done.reason == LadderEnd.CEILING
    assert "ramp-64" in names(stages)


def test_a_level_that_ran_out_of_time_before_it_was_steady_is_not_tried_again():
    out_of_time: dict[str, object] = {"ended_by": NOT_STEADY, "duration": SETTINGS.max_stage_duration_s}
    stages, _ = play(lambda order, i: out_of_time if order.name == "ramp-8" else {})
    assert "ramp-8" in names(stages)
    assert "ramp-8-b" not in names(stages)


def test_a_level_that_is_steady_in_its_second_try_counts():
    stages, _ = play(lambda order, i: {"ended_by": NOT_STEADY} if order.name == "ramp-8" else {})
    assert [s.name for s in usable(stages, StageKind.RAMP) if s.name.startswith("ramp-8")] == ["ramp-8-b"]


def test_the_ramp_goes_on_above_a_last_level_that_is_never_steady():
    stages, done = play(unsteady("ramp-64", "open-1"))
    assert done.reason == LadderEnd.CEILING
    assert "left out" in done.message
    assert names(stages).count("open-1-b") == 1


def test_a_ramp_without_one_steady_level_is_not_measurable():
    _, done = play(unsteady("ramp-"))
    assert done.reason == LadderEnd.NOT_MEASURABLE
    assert "maxStageDuration" in done.message


@pytest.mark.parametrize("base", ["warm-up-", "control-", "prefill-", "steps-"])
def test_stages_of_which_no_steadiness_is_asked_are_not_repeated_for_it(base: str):
    assert names(play(unsteady(base))[0]) == names(play()[0])


def test_marking_void_stages_in_the_status_changes_nothing_of_the_plan():
    slow: dict[str, object] = {"output_tokens_per_second": 100.0}
    stages, _ = play(lambda order, i: slow if order.name == "control-1" else {})
    for count in range(len(stages)):
        assert next_stage(SETTINGS, stages[:count]) == next_stage(SETTINGS, mark_void(stages[:count], 0.15))


def test_controls_that_never_agree_end_the_run_with_a_next_step():
    def drifting(order: StageOrder, index: int) -> dict[str, object]:
        if order.kind is not StageKind.CONTROL:
            return {}
        return {"output_tokens_per_second": 100.0 * 2 ** int(order.name.split("-")[1])}

    stages, done = play(drifting)
    assert done.reason == LadderEnd.CONTROLS_DISAGREE
    assert names(stages).count("control-3") == 1
    assert "control-4" not in names(stages)
    assert "throttling" in done.message


def test_an_invalid_stage_is_repeated_twice_and_then_ends_the_ramp():
    def client_too_slow(order: StageOrder, index: int) -> dict[str, object]:
        late = order.name.startswith("ramp-32")
        return {"verdict": Verdict.INVALID, "message": "The client was late."} if late else {}

    stages, done = play(client_too_slow)
    assert [n for n in names(stages) if n.startswith("ramp-32")] == ["ramp-32", "ramp-32-b", "ramp-32-c"]
    assert "ramp-64" not in names(stages)
    assert done.reason == LadderEnd.CLIENT_LIMIT
    assert "The client was late." in done.message


@pytest.mark.parametrize("name", ["control-1", "ramp-1"])
def test_without_its_first_stages_nothing_can_be_measured(name):
    _, done = play(lambda order, i: {"verdict": Verdict.INVALID} if order.name.startswith(name) else {})
    assert done.reason == LadderEnd.NOT_MEASURABLE
    assert name in done.message


def test_prefill_stages_that_stay_invalid_are_left_out():
    stages, done = play(lambda order, i: {"verdict": Verdict.INVALID} if "prefill-512" in order.name else {})
    assert [n for n in names(stages) if "512" in n] == ["prefill-512", "prefill-512-b", "prefill-512-c"]
    assert "open-1" in names(stages)
    assert done.reason == LadderEnd.CEILING


def test_far_past_every_target_the_ramp_stops():
    def slow(order: StageOrder, index: int) -> dict[str, object]:
        users = order.arrivals.users if isinstance(order.arrivals, Closed) else 0
        return {"p99_tpot": 0.01 * users, "p99_ttft": 0.1 * users}

    stages, done = play(slow)
    assert done.reason == LadderEnd.PAST_TARGETS
    assert [n for n in names(stages) if n.startswith("ramp")][-1] == "ramp-16"


def test_the_ramp_stops_at_what_the_kv_cache_holds():
    held = replace(SETTINGS, kv_cache_tokens=6000)
    stages, done = play(settings=held)
    assert done.reason == LadderEnd.KV_LIMIT
    assert [n for n in names(stages) if n.startswith("ramp")][-1] in ("ramp-19", "ramp-20")


def test_where_no_level_meets_the_target_open_loop_stages_would_be_wasted():
    stages, _ = play(lambda order, i: {"p50_tpot": 1.0, "p99_tpot": 1.0})
    assert "open-1" not in names(stages)


def test_without_targets_there_are_no_open_loop_stages():
    stages, _ = play(settings=replace(SETTINGS, slo=Slo()))
    assert "open-1" not in names(stages)
    assert "prefill-128" in names(stages)


def test_open_loop_rates_are_shares_of_the_best_level_inside_the_target():
    orders: dict[str, StageOrder] = {}

    def note(order: StageOrder, index: int) -> dict[str, object]:
        orders[order.name] = order
        users = order.arrivals.users if isinstance(order.arrivals, Closed) else 0
        return {"p50_tpot": 0.001 * users}  # 32 users are inside 40 ms, 64 are not

    play(note)
    rates = [o.arrivals.rate for o in orders.values() if isinstance(o.arrivals, Open)]
    best = 32 / (1 + 32 / 16)
    assert rates == pytest.approx([0.75 * best])


def test_controls_agree_on_a_server_that_never_changes():
    server = SmallServer(lambda n, kv, p: 8e-3 + 8e-5 * n + 3e-5 * p, CEILING)
    wide = replace(SETTINGS, prompt_tokens=LogNormal(mean=800, sigma=1, maximum=8000))
    for seed in range(3):
        assert not [s.name for s in run_ladder(wide, server, seed) if s.name.endswith("-b")]


def test_stages_of_another_setting_are_not_of_this_ladder():
    other = summary("control-1", StageKind.CONTROL, setting=CEILING.with_changes(max_num_seqs=128))
    warm = [summary(f"warm-up-1-{i}", StageKind.WARM_UP) for i in (1, 2)]
    order = next_stage(SETTINGS, [*warm, other])
    assert isinstance(order, StageOrder)
    assert order.name == "control-1"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["ok", "ok", "ok", "invalid", "slow", "flat"]), max_size=40))
def test_every_ladder_ends_and_no_name_is_used_twice(script):
    def answer(order: StageOrder, index: int) -> dict[str, object]:
        match script[index] if index < len(script) else "ok":
            case "invalid":
                return {"verdict": Verdict.INVALID}
            case "slow":
                return {"output_tokens_per_second": 50.0, "p99_tpot": 1.0, "p99_ttft": 5.0}
            case "flat":
                return {"output_tokens_per_second": 400.0}
            case _:
                return {}

    stages, done = play(answer, most=90)
    assert len(set(names(stages))) == len(stages)
    assert done.message


def test_a_whole_ramp_at_10_ms_steps_and_64_sequences_takes_about_two_minutes():
    server = SmallServer(lambda decoding, kv, prefill: 8e-3 + 8e-5 * decoding + 3e-5 * prefill, CEILING, step_noise=0.0)
    stages = run_ladder(SETTINGS, server)
    ramp = [stage for stage in stages if stage.kind in (StageKind.RAMP, StageKind.CONTROL)]
    assert sum(stage.duration for stage in ramp) < 150
    assert sum(stage.duration for stage in stages) < 300
