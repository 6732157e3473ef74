from kneekeeper.api.tuning_run import StageSummary
from kneekeeper.domain.admission import most_running
from tests.unit.stage_builders import summary


def level(users: int, rate: float, ttft_s: float) -> StageSummary:
    return summary(
        f"ramp-{users}", users=users, mean_concurrency=float(users), requests_per_second=rate, p50_ttft=ttft_s
    )


def test_users_who_wait_for_their_first_token_do_not_run():
    ramp = [level(64, 6.0, 0.1), level(128, 9.0, 3.5), level(256, 9.0, 17.7)]
    assert most_running(ramp) is not None
    assert 96 <= (most_running(ramp) or 0) <= 105


def test_where_nearly_all_users_run_no_limit_has_shown():
    assert most_running([level(64, 6.0, 0.1), level(128, 9.0, 0.3)]) is None
    assert most_running([]) is None


def test_a_single_user_who_waits_for_a_long_prompt_is_no_limit():
    assert most_running([level(1, 0.5, 1.9), level(2, 0.9, 1.9), level(4, 1.0, 0.5)]) is None
