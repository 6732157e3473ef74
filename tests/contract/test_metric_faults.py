"""Every fault of production's metrics: a condition says so, and nothing is decided on them.

Behind each fault stands bad news, on which everything that listens would act: the first tests show that.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from kneekeeper.domain.actions import CreateRun, ProfileAction, WriteWords
from kneekeeper.domain.observation import ProductionLoad, ProfileObservation, Unreachable
from kneekeeper.domain.plan import profile as profile_plan
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.kube.client import Kube
from kneekeeper.observe import prometheus_queries
from kneekeeper.observe.clients import Clients, ObserveSettings
from kneekeeper.observe.engine_http import open_http
from kneekeeper.observe.metrics import ServingPods
from kneekeeper.observe.production import with_metrics
from kneekeeper.observe.serving import load_of
from tests.contract.prometheus_server import Fault, Rows, prometheus_server
from tests.unit.plan.test_retuning import BREACH
from tests.unit.plan.test_rollouts import reason, recommended, rolling_out
from tests.unit.plan.test_verify import shares
from tests.unit.plan.world import World, settled

PODS = ("chat-0", "chat-1")
VERIFIED_S = 61.0
LONG_AGO = timedelta(hours=3)
SKEW_S = 300.0

FAULTS = {
    Fault.DOWN: "ConnectionError",
    Fault.SLOW: "ReadTimeout",
    Fault.DRIPPING: "did not answer in time",
    Fault.ENDLESS: "AnswerTooLong",
    Fault.ERROR: "HTTP 503",
    Fault.REDIRECT: "TooManyRedirects",
    Fault.NO_JSON: "not one of Prometheus",
    Fault.NO_RESULT: "not one of Prometheus",
    Fault.NO_SERIES: "not one of Prometheus",
    Fault.EMPTY: "num_requests_running",
    Fault.NAN: "num_requests_running",
    Fault.INFINITE: "num_requests_running",
    Fault.NEGATIVE: "num_requests_running",
    Fault.HUGE: "num_requests_running",
    Fault.PARTIAL: "chat-1",
    Fault.OTHER_LABELS: "num_requests_running",
}
"""Each with what the condition's message says of it."""


def of_pods(value: float) -> Rows:
    return [{"metric": {"pod": pod}, "value": [0, str(value)]} for pod in PODS]


def of_bounds(**counts: int) -> Rows:
    return [{"metric": {"le": le}, "value": [0, str(count)]} for le, count in counts.items()]


NO_HISTORY: dict[str, Rows] = {window: [] for window in ("[1d:300s]", "[7d:1h]", "[24h]", "[1200s]")}
MISSES = {"2.0": 10_000, "+Inf": 20_000}
BAD_NEWS = NO_HISTORY | {
    "num_requests_running": of_pods(4),
    "num_requests_waiting": of_pods(9),
    "generation_tokens_total": of_pods(10),
    "num_preemptions_total": of_pods(0),
    "max_over_time": [{"metric": {}, "value": [0, "12.5"]}],
    "time_to_first_token_seconds_bucket": of_bounds(**MISSES),
    "request_time_per_output_token_seconds_bucket": of_bounds(**{"0.025": 20_000, "+Inf": 20_000}),
}
"""Requests wait, and half of all miss their target."""


LIMITS = {
    Fault.SLOW: ("READ_TIMEOUT_S", 0.25),
    Fault.DRIPPING: ("TIMEOUT_S", 1.0),
    Fault.ENDLESS: ("LARGEST_ANSWER_BYTES", 50_000),
}
"""Made small where they are reached: nobody waits, and a busy machine misses no other."""


@pytest.fixture(params=FAULTS, ids=lambda fault: fault.name.lower())
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fault:
    """Each in turn."""
    chosen: Fault = request.param
    if chosen in LIMITS:
        monkeypatch.setattr(prometheus_queries, *LIMITS[chosen])
    return chosen


@dataclass(frozen=True)
class Looks:
    """What two looks at a profile came to, one behind the other."""

    actions: tuple[ProfileAction, ...]
    seen: ProfileObservation


async def two_looks(world: World, url: str, *, between_s: float) -> Looks:
    """As the operator has them, with the installation's Prometheus at `url`."""
    actions: list[ProfileAction] = []
    async with open_http() as http:
        clients = Clients(cast(Kube, None), http, settings=ObserveSettings(prometheus_url=url))
        for passed_s in (0.0, between_s):
            world.now += timedelta(seconds=passed_s)
            seen = world.observe_profile()
            seen = await with_metrics(clients, seen, ServingPods("prod", seen.pods or (), 8000))
            decision = profile_plan.decide(seen)
            world.profile = world.profile.with_changes(status=decision.status)
            actions += decision.actions
    return Looks(tuple(actions), seen)


def verifying() -> World:
    """A rollout under verification, which went well before."""
    world = recommended()
    world.violations = shares(0.01)
    return rolling_out(world)


def watching_for_breaches() -> World:
    world = settled(updatePolicy={"mode": "Off"}, retune=BREACH)
    world.now += LONG_AGO
    return world


def message(world: World) -> str:
    found = find(world.profile.status.conditions, ConditionType.METRICS_AVAILABLE)
    assert found is not None
    assert (found.status, found.reason) == ("False", "MetricsMissing")
    return found.message


@pytest.mark.parametrize("ahead_s", [0.0, SKEW_S, -SKEW_S], ids=["same clock", "ahead", "behind"])
async def test_bad_news_take_a_rollout_back_whatever_the_servers_clock_says(ahead_s: float):
    world = verifying()
    async with prometheus_server(BAD_NEWS) as server:
        server.ahead_s = 1_000_000.0 + ahead_s
        looks = await two_looks(world, server.url, between_s=VERIFIED_S)
    assert any(isinstance(action, WriteWords) for action in looks.actions)
    assert reason(world, ConditionType.METRICS_AVAILABLE) == "MetricsRead"
    assert load_of(looks.seen.pod_metrics or {}) == ProductionLoad(running=8, waiting=18)


async def test_bad_news_start_a_run():
    async with prometheus_server(BAD_NEWS) as server:
        looks = await two_looks(watching_for_breaches(), server.url, between_s=1.0)
    assert any(isinstance(action, CreateRun) for action in looks.actions)


async def test_a_fault_is_told_and_neither_takes_a_rollout_back_nor_proves_it(fault: Fault):
    world = verifying()
    async with prometheus_server(BAD_NEWS, fault) as server:
        looks = await two_looks(world, server.url, between_s=VERIFIED_S)
    assert FAULTS[fault] in message(world)
    assert "secret" not in message(world)
    assert not [action for action in looks.actions if isinstance(action, WriteWords)]
    assert world.profile.status.applied is not None
    assert not world.profile.status.applied.verified
    assert isinstance(load_of(looks.seen.pod_metrics or {}), Unreachable), "nothing is borrowed"


async def test_a_fault_starts_no_run(fault: Fault):
    async with prometheus_server(BAD_NEWS, fault) as server:
        looks = await two_looks(watching_for_breaches(), server.url, between_s=1.0)
    assert not [action for action in looks.actions if isinstance(action, CreateRun)]


async def test_gauges_of_another_name_are_told_by_the_old_one_and_nothing_is_borrowed():
    world = verifying()
    async with prometheus_server(BAD_NEWS, Fault.RENAMED) as server:
        looks = await two_looks(world, server.url, between_s=VERIFIED_S)
    assert "num_requests_running, num_requests_waiting" in message(world)
    assert isinstance(load_of(looks.seen.pod_metrics or {}), Unreachable)


@pytest.mark.parametrize(
    "fault",
    [Fault.DOWN, Fault.SLOW, Fault.DRIPPING, Fault.ENDLESS],
    ids=lambda fault: fault.name.lower(),
    indirect=True,
)
async def test_a_server_that_does_not_answer_is_asked_once_a_while(fault: Fault):
    async with prometheus_server(BAD_NEWS, fault) as server:
        await two_looks(verifying(), server.url, between_s=1.0)
        assert len(server.asked) == 1


POSSIBLE = (0.0, 1e-9, 0.4, 1.0, 17.0, 1e6, 1e15)


class AnyNumbers(dict[str, Rows]):
    """Each query is answered by numbers that an engine could tell, and that make no sense together."""

    def __init__(self, seed: int) -> None:
        super().__init__({kind: [] for kind in ("[1d:300s]", "[7d:1h]", "[24h]", "[1200s]", "{")})
        self._random = random.Random(seed)
        self._bounds = self._random.choice([("0.01", "1", "+Inf"), ("1", "100", "+Inf"), ("5e17", "+Inf"), ("1",)])

    def items(self) -> Any:
        return [(key, self._rows(key)) for key in self]

    def _rows(self, key: str) -> Rows:
        families = ("inter_token_latency_seconds_sum", "num_requests_running", "num_preemptions_total")
        labels = [{"pod": pod, "engine": "0", "le": le} for pod in PODS for le in self._bounds]
        labels = [each | {"__name__": f"vllm:{self._random.choice(families)}"} for each in labels]
        if key == "{":
            return [{"metric": each, "value": [0, self._number()]} for each in labels]
        times = [3600.0 * hour for hour in range(1, 40)]
        return [{"metric": each, "values": [[at_s, self._number()] for at_s in times]} for each in labels]

    def _number(self) -> str:
        return str(self._random.choice(POSSIBLE))


@pytest.mark.parametrize("seed", range(12))
async def test_numbers_that_make_no_sense_together_break_no_look(seed: int):
    world = settled(retune=BREACH) if seed % 2 else verifying()
    async with prometheus_server(AnyNumbers(seed)) as server:
        await two_looks(world, server.url, between_s=VERIFIED_S)
        assert len(server.asked) > 10
    assert reason(world, ConditionType.METRICS_AVAILABLE) == "MetricsRead"
