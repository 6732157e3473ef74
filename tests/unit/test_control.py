from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.control import drift_between, mark_void, segments, usable
from tests.unit.stage_builders import summary


def control(number: int, speed: float, verdict: Verdict | None = None) -> StageSummary:
    return summary(
        f"control-{number}",
        StageKind.CONTROL,
        p50_tpot=0.02 / speed,
        output_tokens_per_second=400 * speed,
        verdict=verdict,
    )


def test_controls_differ_by_the_larger_of_both_measures():
    slow_tokens = summary(kind=StageKind.CONTROL, p50_tpot=0.02, output_tokens_per_second=200.0)
    assert drift_between(control(1, 1.0), slow_tokens).share == 1.0
    assert drift_between(control(1, 1.0), control(2, 1.0)).share == 0.0
    assert (
        drift_between(control(1, 1.2), control(2, 1.0)).share == drift_between(control(2, 1.0), control(1, 1.2)).share
    )


def test_a_control_that_measured_nothing_shows_no_drift():
    blind = control(2, 1.0).with_changes(p50_tpot=None, output_tokens_per_second=0.0)
    assert drift_between(control(1, 1.0), blind).share == 0.0


def test_stages_between_disagreeing_controls_are_void_and_say_why():
    stages = [control(1, 1.0), summary("ramp-1"), control(2, 0.7), summary("ramp-1-b"), control(3, 0.72)]
    marked = mark_void(stages, 0.15)
    assert [stage.verdict for stage in marked] == [None, Verdict.VOID, None, None, None]
    assert marked[1].message == (
        "The machine drifted: the median TPOT rose by 43% from control-1 to control-2, "
        "more than the 15% that is allowed."
    )
    assert [stage.name for stage in usable(marked, StageKind.RAMP)] == ["ramp-1-b"]


def test_stages_behind_the_last_control_are_not_judged_yet():
    assert mark_void([control(1, 1.0), summary("ramp-1")], 0.15)[1].verdict is None


def test_an_invalid_control_separates_nothing():
    stages = [control(1, 1.0), summary("ramp-1"), control(2, 0.2, Verdict.INVALID), control(2, 1.0)]
    assert [part.drift for part in segments(stages)] == [0.0, None]


def test_certifications_and_warm_ups_are_not_held_by_controls():
    stages = [
        control(1, 1.0),
        summary("certify-1", StageKind.CERTIFY, verdict=Verdict.PASS),
        summary("warm-up-1-1", StageKind.WARM_UP),
        control(2, 0.1),
    ]
    assert mark_void(stages, 0.15) == tuple(stages)


@given(st.lists(st.sampled_from(["control", "slow", "ramp", "invalid"]), max_size=12))
def test_marking_twice_changes_nothing_more(words):
    stages = [
        control(i, 1.0 if word == "control" else 0.5)
        if word in ("control", "slow")
        else summary(f"ramp-{i}", verdict=Verdict.INVALID if word == "invalid" else None)
        for i, word in enumerate(words)
    ]
    once = mark_void(stages, 0.15)
    assert mark_void(once, 0.15) == once
    assert [s.verdict for s in once if s.verdict == Verdict.INVALID] == [Verdict.INVALID] * words.count("invalid")
