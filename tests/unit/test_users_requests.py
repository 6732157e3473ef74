"""Whose requests an engine serves, from its counters: the agent's own are never taken for users'."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain.users_requests import EngineCount, began_anew, count_in, unaccounted, users_requests

IDLE = EngineCount(ended=100, inside=0, generated_tokens=5000)

EXPOSITION = """\
# HELP vllm:num_requests_running Requests in execution.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 2.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 1.2e+03
vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 7.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 4.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"} 9.0
vllm:request_success_created{engine="0",finished_reason="stop",model_name="tiny"} 1.7e+09
"""


def test_ranks_and_reasons_are_summed_and_aborted_requests_are_left_out():
    assert count_in(EXPOSITION) == EngineCount(ended=11, inside=6, generated_tokens=1200)


def test_the_names_of_ray_and_kserve_are_read():
    assert count_in(EXPOSITION.replace("vllm:", "ray_vllm_")) == count_in(EXPOSITION)
    assert count_in(EXPOSITION.replace("vllm:", "kserve_vllm:")) == count_in(EXPOSITION)


def test_a_missing_family_is_not_taken_for_zero():
    for family in ("num_requests_running", "num_requests_waiting{", "generation_tokens_total", "request_success_total"):
        lines = [line for line in EXPOSITION.splitlines() if family not in line]
        assert count_in("\n".join(lines)) is None
    assert count_in("") is None
    assert count_in(EXPOSITION.replace(" 3.0", " NaN")) is None
    assert count_in(EXPOSITION.replace(" 3.0", " three")) is None


@given(
    sent=st.integers(0, 10_000),
    arrived=st.floats(0, 1),
    done=st.floats(0, 1),
    later=st.integers(0, 100),
    users=st.integers(0, 50),
)
def test_what_the_agent_has_sent_is_never_a_users_and_what_is_beyond_it_always_is(
    sent: int, arrived: float, done: float, later: int, users: int
):
    inside_engine = int(arrived * sent)
    ended = int(done * inside_engine)
    now = EngineCount(IDLE.ended + ended, inside_engine - ended, IDLE.generated_tokens)
    assert users_requests(IDLE, now, sent + later) == 0
    with_users = EngineCount(now.ended, sent - ended + users, now.generated_tokens)
    assert users_requests(IDLE, with_users, sent) == users


def test_a_users_request_that_came_and_went_between_two_looks_is_seen_too():
    now = EngineCount(IDLE.ended + 11, 4, IDLE.generated_tokens)
    assert users_requests(IDLE, now, sent=14) == 1


def test_a_stage_whose_requests_and_tokens_are_the_engines_is_accounted_for():
    after = EngineCount(IDLE.ended + 40, 0, IDLE.generated_tokens + 800)
    assert unaccounted(IDLE, after, answered=40, failed=0, tokens=800) is None


def test_a_request_or_a_token_more_than_the_agents_is_told():
    one_more = EngineCount(IDLE.ended + 41, 0, IDLE.generated_tokens + 820)
    assert "41 requests" in (unaccounted(IDLE, one_more, answered=40, failed=0, tokens=800) or "")
    aborted = EngineCount(IDLE.ended + 40, 0, IDLE.generated_tokens + 805)  # by its user, before its end
    assert "805 tokens" in (unaccounted(IDLE, aborted, answered=40, failed=0, tokens=800) or "")


def test_fewer_than_the_agents_is_told_as_well():
    after = EngineCount(IDLE.ended + 39, 0, IDLE.generated_tokens + 800)
    assert unaccounted(IDLE, after, answered=40, failed=0, tokens=800) is not None


def test_of_requests_that_were_broken_off_it_is_open_how_far_they_came():
    for ended in (40, 45, 50):
        after = EngineCount(IDLE.ended + ended, 0, IDLE.generated_tokens + 900)
        assert unaccounted(IDLE, after, answered=40, failed=10, tokens=850) is None
    after = EngineCount(IDLE.ended + 51, 0, IDLE.generated_tokens + 900)
    assert unaccounted(IDLE, after, answered=40, failed=10, tokens=850) is not None


def test_an_engine_whose_counters_went_back_is_another_one():
    assert began_anew(IDLE, EngineCount(3, 0, 9000))
    assert began_anew(IDLE, EngineCount(300, 0, 40))
    assert not began_anew(IDLE, IDLE)
