from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain.contradictions import ContradictionKind, ServerTotals, contradictions
from kneekeeper.domain.load_level import Delivered

CLIENT = Delivered(succeeded=100, not_succeeded=0, prompt_tokens=5000, output_tokens=900, ttft_mean_s=0.105)
SERVER = ServerTotals(
    requests=100.0,
    prompt_tokens=5000.0,
    generation_tokens=900.0,
    ttft_sum_s=10.0,
    ttft_count=100.0,
    prefix_queries=5000.0,
    prefix_hits=0.0,
)
UNKNOWN = ServerTotals(None, None, None, None, None, None, None)


def kinds(client: Delivered, server: ServerTotals) -> list[ContradictionKind]:
    return [found.kind for found in contradictions("users-8", client, server)]


def test_a_server_that_counts_the_same_contradicts_nothing() -> None:
    assert kinds(CLIENT, SERVER) == []


def test_a_server_without_these_counters_contradicts_nothing() -> None:
    assert kinds(CLIENT, UNKNOWN) == []


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("requests", ContradictionKind.REQUESTS),
        ("prompt_tokens", ContradictionKind.PROMPT_TOKENS),
        ("generation_tokens", ContradictionKind.OUTPUT_TOKENS),
    ],
)
def test_one_request_or_token_more_or_less_is_told(field: str, kind: ContradictionKind) -> None:
    for added in (-1, 1):
        other = replace(SERVER, **{field: getattr(SERVER, field) + added})
        assert kinds(CLIENT, other) == [kind]
    assert "Somebody else" in contradictions("l", CLIENT, replace(SERVER, requests=101.0))[0].message


def test_counts_are_not_compared_where_requests_failed() -> None:
    assert kinds(replace(CLIENT, succeeded=98, not_succeeded=2), SERVER) == []


def test_a_first_token_before_the_server_had_one_is_told() -> None:
    assert kinds(replace(CLIENT, ttft_mean_s=0.090), SERVER) == [ContradictionKind.TTFT_EARLY]


def test_a_first_token_long_after_the_server_had_it_is_told() -> None:
    assert kinds(replace(CLIENT, ttft_mean_s=0.125), SERVER) == [ContradictionKind.TTFT_OUTSIDE]
    assert kinds(replace(CLIENT, ttft_mean_s=0.119), SERVER) == []


def test_prefix_hits_that_nobody_asked_for_are_told() -> None:
    assert kinds(CLIENT, replace(SERVER, prefix_hits=500.0)) == [ContradictionKind.PREFIX_HITS]
    assert kinds(CLIENT, replace(SERVER, prefix_hits=100.0)) == []


totals = st.builds(ServerTotals, *[st.none() | st.floats(0, 1e9)] * 7)


@given(totals, totals)
def test_a_counter_that_is_missing_or_went_back_adds_nothing_known(before: ServerTotals, after: ServerTotals) -> None:
    added = after.since(before)
    for name in vars(added):
        was, now, gained = getattr(before, name), getattr(after, name), getattr(added, name)
        known = was is not None and now is not None and now >= was
        assert gained == (now - was if known else None)
