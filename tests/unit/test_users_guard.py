"""When a guarded stage may begin, has to end, and counts, by what the engine's metrics say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from kneekeeper.api.offered_load import Closed
from kneekeeper.api.stage import METRICS_UNREADABLE, USERS_SERVED, WINDOW_CLOSED, Guard, StageState
from kneekeeper.load import guard
from kneekeeper.load.ending import End, Rest
from kneekeeper.load.frames import Tick
from kneekeeper.load.guard import UsersGuard
from kneekeeper.load.progress import Progress
from tests.unit.test_load_evidence import spec

Answers = Iterator[str | None]
FOREVER = 600.0


def metrics(ended: int = 100, inside: int = 0, tokens: int = 5000) -> str:
    return (
        f"vllm:num_requests_running {inside}\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total {tokens}\n"
        f'vllm:request_success_total{{finished_reason="length"}} {ended}\n'
    )


def sequence(*answers: str | None) -> Answers:
    """One after the other, the last one for ever; None is no answer."""
    yield from answers
    while True:
        yield answers[-1]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what the engine answers."""
    for name in ("LOOK_EVERY_S", "LOOK_AGAIN_S"):
        monkeypatch.setattr(guard, name, 0.001)
    monkeypatch.setattr(guard, "SETTLES_WITHIN_S", 0.1)

    def answer_with(*answers: str | None) -> None:
        told = sequence(*answers)

        def answer(request: httpx.Request) -> httpx.Response:
            assert request.url.path == "/metrics"
            text = next(told)
            if text is None:
                raise httpx.ConnectError("refused")
            return httpx.Response(200, text=text)

        monkeypatch.setattr(guard, "_open", lambda: httpx.AsyncClient(transport=httpx.MockTransport(answer)))

    return answer_with


def guarding(for_s: float = FOREVER) -> UsersGuard:
    stage = spec(arrivals=Closed(users=1))
    return UsersGuard(stage.model_copy(update={"guard": Guard(until_s=time.time() + for_s)}))


async def sent(count: int) -> int:
    await asyncio.sleep(0)
    return count


def assert_ended(end: End | None, reason: str) -> None:
    assert end is not None
    assert (end.state, end.reason, end.rest) == (StageState.INVALID, reason, Rest.ABORT)


async def begun(for_s: float = FOREVER) -> UsersGuard:
    watching = guarding(for_s)
    assert await watching.begin() is None
    return watching


async def test_a_stage_begins_on_an_engine_in_which_nothing_is(engine):
    engine(metrics())
    assert await guarding().begin() is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (metrics(inside=1), USERS_SERVED),
        (None, METRICS_UNREADABLE),
        ("vllm:num_requests_running 0", METRICS_UNREADABLE),
    ],
)
async def test_a_stage_does_not_begin_among_users_or_where_they_cannot_be_seen(engine, answer, reason):
    engine(answer)
    assert_ended(await guarding().begin(), reason)


async def test_a_stage_does_not_begin_behind_the_windows_end(engine):
    engine(metrics())
    assert_ended(await guarding(for_s=-1.0).begin(), WINDOW_CLOSED)


async def test_a_request_that_the_agent_did_not_send_ends_the_load(engine):
    engine(metrics(), metrics(inside=4), metrics(ended=102, inside=5))
    end = await (await begun()).watch(lambda _: sent(6))
    assert_ended(end, USERS_SERVED)
    assert "Users sent 1 request" in end.message


async def test_what_is_seen_once_is_not_believed_and_the_load_ends_with_the_window(engine):
    engine(metrics(), metrics(inside=5), metrics(inside=4))
    assert_ended(await (await begun(for_s=0.5)).watch(lambda _: sent(4)), WINDOW_CLOSED)


async def test_looks_in_which_the_agents_own_requests_hide_a_user_do_not_clear_the_suspicion(engine):
    engine(metrics(), metrics(inside=5), metrics(inside=4), metrics(inside=4), metrics(inside=5))
    assert_ended(await (await begun()).watch(lambda _: sent(4)), USERS_SERVED)


async def test_an_engine_that_does_not_answer_any_more_gets_no_more_load(engine, monkeypatch):
    monkeypatch.setattr(guard, "LONGEST_UNSEEN_S", 0.05)
    engine(metrics(), None)
    assert_ended(await (await begun()).watch(lambda _: sent(4)), METRICS_UNREADABLE)


async def test_an_answer_that_is_missed_once_is_no_end(engine):
    engine(metrics(), None, metrics())
    assert_ended(await (await begun(for_s=0.5)).watch(lambda _: sent(4)), WINDOW_CLOSED)


async def test_an_engine_that_began_anew_gets_no_more_load(engine):
    engine(metrics(), metrics(ended=3, tokens=20))
    assert_ended(await (await begun()).watch(lambda _: sent(4)), USERS_SERVED)


async def test_a_stage_counts_once_the_counters_are_the_agents_own(engine):
    engine(metrics(), metrics(ended=138, tokens=5760), metrics(ended=140, tokens=5800))
    assert await (await begun()).settle(answered=40, failed=0, tokens=800) is None


@pytest.mark.parametrize("after", [metrics(ended=141, tokens=5800), metrics(ended=140, tokens=5801)])
async def test_a_request_or_a_token_of_others_makes_the_stage_invalid(engine, after):
    engine(metrics(), after)
    assert_ended(await (await begun()).settle(answered=40, failed=0, tokens=800), USERS_SERVED)


async def test_counters_that_cannot_be_read_at_the_end_make_the_stage_invalid(engine):
    engine(metrics(), None)
    assert_ended(await (await begun()).settle(answered=40, failed=0, tokens=800), METRICS_UNREADABLE)


def test_a_stage_without_a_guard_is_not_watched():
    with pytest.raises(ValueError, match="no guard"):
        UsersGuard(spec())


def test_what_was_sent_by_a_moment_is_known_once_a_tick_tells_of_it():
    progress = Progress(100.0)
    assert progress.sent_at(100.5) is None
    for at, count in ((100.4, 7), (100.6, 9), (100.8, 12)):
        progress.add_tick(Tick(at=at, lag_s=0.0, sent=count, ended=0, waiting=0, answers=0, cpu_s=0.0))
    assert progress.sent_at(100.5) == 9
    assert progress.sent_at(100.3) == 7
    assert progress.sent_at(100.81) is None
