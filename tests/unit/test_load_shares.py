"""Shares of a stage: together they are all of it, and each request is in one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.offered_load import Closed, Open
from kneekeeper.domain.prompts import Prompt
from kneekeeper.domain.workload import draw_workload
from kneekeeper.load.rendering import Renderer
from kneekeeper.load.shares import Share, plan_of
from tests.contract.agent_process import stage


@given(st.integers(1, 16), st.integers(0, 200))
def test_each_request_is_in_one_share_and_a_share_knows_its_size(agents: int, count: int):
    shares = [Share(part, agents) for part in range(agents)]
    for index in range(count):
        assert sum(share.has(index) for share in shares) == 1
    for share in shares:
        assert share.of(count) == sum(share.has(index) for index in range(count))


@given(st.integers(1, 7), st.integers(1, 40))
def test_the_plans_of_all_shares_add_up_to_the_stage(agents: int, users: int):
    for arrivals in (Closed(users=users), Closed(users=users, think_time_s=2.0), Open(rate=float(users))):
        spec = stage(1, arrivals=arrivals, agents=agents)
        workload = draw_workload(spec)
        plans = [plan_of(spec, workload, Share(part, agents)) for part in range(agents)]
        [whole] = [plan_of(spec, workload, Share(0, 1))]
        assert sum(plan.orders for plan in plans) == whole.orders
        assert sum(plan.users for plan in plans) == whole.users
        assert abs(sum(plan.rate for plan in plans) - whole.rate) < 1e-9 * max(1.0, whole.rate)


def test_the_orders_of_all_shares_are_those_of_the_stage():
    spec = stage(1, agents=3)
    workload = draw_workload(spec)
    whole = list(Renderer(spec, workload, None).orders())
    parts = [order for part in range(3) for order in Renderer(spec, workload, None).orders(Share(part, 3))]
    assert [str(order) for order in sorted(parts, key=lambda order: order.index)] == [str(order) for order in whole]


def test_real_prompts_go_to_the_requests_that_one_agent_would_send_them_with():
    spec = stage(1, agents=3)
    workload = draw_workload(spec)

    def prompts() -> Iterator[tuple[int, Prompt]]:
        return ((0, Prompt(f"prompt {number}")) for number in itertools.count())

    for part in range(3):
        for order in Renderer(spec, workload, None, prompts()).orders(Share(part, 3)):
            assert b'"prompt %d"' % order.index in order.request
