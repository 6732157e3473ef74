"""Rates from scrapes of the pods themselves: from two looks, of at most 16 pods, across restarts."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from kneekeeper.api.stage import Slo
from kneekeeper.domain.diagnose import Family
from kneekeeper.domain.observation import EngineMetrics, PodView, Unreachable
from kneekeeper.observe import direct
from kneekeeper.observe.direct import LEAST_SCRAPES, MOST_PODS, DirectSource
from kneekeeper.observe.engine_metrics import MetricsMissing
from kneekeeper.observe.metrics import MetricsUnreachable, ServingPods
from kneekeeper.observe.pods import parse_pod
from tests.unit.kube_objects import pod

SLO = Slo(ttft_s=0.5)


def pod_at(number: int) -> PodView:
    return replace(parse_pod(pod(f"chat-{number}"), "vllm"), ip=f"10.0.0.{number}")


def serving(*numbers: int) -> ServingPods:
    return ServingPods("prod", tuple(pod_at(n) for n in numbers), 8000)


class Engines:
    """Engines by address that count requests within and beyond half a second; and the clock."""

    def __init__(self, *numbers: int) -> None:
        self.counts = {f"10.0.0.{n}": [0, 0] for n in numbers}
        self.now_s = 1000.0
        self.scrapes = 0
        self.histograms = True
        self.errors: dict[str, int] = {}
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self.source = DirectSource(http, clock=lambda: self.now_s)

    def serve(self, number: int, good: int, bad: int) -> None:
        counts = self.counts[f"10.0.0.{number}"]
        counts[0] += good
        counts[1] += bad

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.host not in self.counts:
            raise httpx.ConnectError("refused")
        self.scrapes += 1
        good, bad = self.counts[request.url.host]
        text = (
            "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
            f"vllm:num_preemptions_total 0\nvllm:generation_tokens_total {good + bad}\n"
        )
        if self.histograms:
            name = "vllm:time_to_first_token_seconds"
            text += (
                f"# TYPE {name} histogram\n"
                f'{name}_bucket{{le="0.5"}} {good}\n{name}_bucket{{le="+Inf"}} {good + bad}\n'
                f"{name}_count {good + bad}\n{name}_sum 1\n"
            )
        if request.url.host in self.errors:
            name, failed = "vllm:request_success_total", self.errors[request.url.host]
            text += "# TYPE vllm:request_success counter\n"
            text += f'{name}{{finished_reason="stop"}} {good + bad}\n{name}{{finished_reason="error"}} {failed}\n'
        return httpx.Response(200, text=text)


async def test_the_first_look_tells_numbers_and_no_share():
    engines = Engines(1)
    engines.serve(1, 100, 100)
    assert isinstance((await engines.source.engine_metrics(serving(1)))["chat-1"], EngineMetrics)
    assert await engines.source.violation_share(serving(1), SLO, 600) is None


async def test_the_share_is_of_what_was_counted_between_two_looks():
    engines = Engines(1, 2)
    engines.serve(1, 0, 1000)
    await engines.source.engine_metrics(serving(1, 2))
    engines.now_s += 60
    engines.serve(1, 70, 10)
    engines.serve(2, 10, 10)
    share = await engines.source.violation_share(serving(1, 2), SLO, 600)
    assert share is not None
    assert (share.lower, share.upper, share.requests) == (0.2, 0.2, 100)


async def test_requests_that_fail_are_misses_where_an_availability_is_promised():
    engines = Engines(1)
    engines.errors["10.0.0.1"] = 50
    await engines.source.engine_metrics(serving(1))
    engines.now_s += 60
    engines.serve(1, 95, 0)
    engines.errors["10.0.0.1"] += 5
    promised = Slo(ttft_s=0.5, availability=0.99)
    share = await engines.source.violation_share(serving(1), promised, 600)
    assert share is not None
    assert (share.lower, share.upper) == (0.05, 0.05)
    engines.errors["10.0.0.1"] = 0  # it began anew
    engines.now_s += 60
    share = await engines.source.violation_share(serving(1), Slo(availability=0.99), 600)
    assert share is not None
    assert share.upper == 0.0


async def test_an_engine_that_does_not_tell_how_requests_ended_is_missing_that():
    engines = Engines(1)
    await engines.source.engine_metrics(serving(1))
    engines.now_s += 60
    with pytest.raises(MetricsMissing, match="request_success_total"):
        await engines.source.violation_share(serving(1), Slo(availability=0.99), 600)


async def test_one_tick_scrapes_a_pod_once():
    engines = Engines(1)
    await engines.source.engine_metrics(serving(1))
    await engines.source.violation_share(serving(1), SLO, 600)
    assert engines.scrapes == 1


async def test_what_was_counted_before_the_window_does_not_count():
    engines = Engines(1)
    await engines.source.engine_metrics(serving(1))
    engines.serve(1, 0, 50)
    for _ in range(4):
        engines.now_s += 60
        await engines.source.engine_metrics(serving(1))
    engines.now_s += 60
    engines.serve(1, 10, 0)
    share = await engines.source.violation_share(serving(1), SLO, 100)
    assert share is not None
    assert (share.upper, share.requests) == (0.0, 10)


async def test_looks_that_lie_further_apart_than_the_window_are_used_all_the_same():
    engines = Engines(1)
    await engines.source.engine_metrics(serving(1))
    engines.now_s += 300
    engines.serve(1, 5, 5)
    share = await engines.source.violation_share(serving(1), SLO, 60)
    assert share is not None
    assert (share.lower, share.requests) == (0.5, 10)


async def test_frequent_looks_keep_the_older_ones():
    engines = Engines(1)
    await engines.source.engine_metrics(serving(1))
    for _ in range(30):
        engines.now_s += 2
        engines.serve(1, 1, 1)
        await engines.source.engine_metrics(serving(1))
    share = await engines.source.violation_share(serving(1), SLO, 600)
    assert share is not None
    assert share.requests == 60


async def test_an_engine_that_restarted_counts_from_zero():
    engines = Engines(1)
    engines.serve(1, 100, 0)
    await engines.source.engine_metrics(serving(1))
    engines.now_s += 60
    engines.counts["10.0.0.1"] = [3, 1]
    share = await engines.source.violation_share(serving(1), SLO, 600)
    assert share is not None
    assert (share.lower, share.requests) == (0.25, 4)


async def test_a_silent_pod_is_told_and_the_others_go_on():
    engines = Engines(1)
    metrics = await engines.source.engine_metrics(serving(1, 2))
    assert isinstance(metrics["chat-1"], EngineMetrics)
    assert isinstance(metrics["chat-2"], Unreachable)


async def test_a_pod_without_address_is_not_asked():
    waiting = replace(pod_at(1), ip="")
    metrics = await Engines().source.engine_metrics(ServingPods("prod", (waiting,), 8000))
    assert metrics["chat-1"] == Unreachable("the pod has no address yet")


async def test_when_all_pods_are_silent_the_share_is_unreachable():
    with pytest.raises(MetricsUnreachable, match="refused"):
        await Engines().source.violation_share(serving(1, 2), SLO, 600)


async def test_a_missing_histogram_is_named():
    engines = Engines(1)
    engines.histograms = False
    await engines.source.engine_metrics(serving(1))
    engines.now_s += 60
    with pytest.raises(MetricsMissing, match="time_to_first_token_seconds"):
        await engines.source.violation_share(serving(1), SLO, 600)


async def test_no_more_than_sixteen_pods_are_scraped_and_the_rest_are_told_the_next_step():
    numbers = range(1, MOST_PODS + 3)
    engines = Engines(*numbers)
    metrics = await engines.source.engine_metrics(serving(*numbers))
    assert engines.scrapes == MOST_PODS
    beyond = metrics[f"chat-{MOST_PODS + 1}"]
    assert isinstance(beyond, Unreachable)
    assert "spec.metrics" in beyond.why
    assert len(metrics) == len(numbers)


async def test_the_demand_is_the_highest_rate_of_all_pods_together():
    engines = Engines(1, 2)
    assert await engines.source.demand(serving(1, 2)) is None
    for first, second in [(60, 60), (300, 120), (60, 0)]:
        await engines.source.engine_metrics(serving(1, 2))
        engines.now_s += 60
        engines.serve(1, first, 0)
        engines.serve(2, second, 0)
    await engines.source.engine_metrics(serving(1, 2))
    demand = await engines.source.demand(serving(1, 2))
    assert demand is not None
    assert demand.peak_requests_per_s == pytest.approx(7.0)


async def test_a_share_tells_how_long_it_was_counted_for():
    engines = Engines(1)
    for _ in range(3):
        await engines.source.engine_metrics(serving(1))
        engines.now_s += 60
    share = await engines.source.violation_share(serving(1), SLO, 3600)
    assert share is not None
    assert share.window_s == pytest.approx(180.0)


async def test_readings_for_a_diagnosis_are_what_was_scraped_oldest_first():
    engines = Engines(1)
    for _ in range(3):
        engines.serve(1, 10, 0)
        await engines.source.engine_metrics(serving(1))
        engines.now_s += 60.0
    found = (await engines.source.readings(serving(1, 2)))["chat-1"]
    assert [reading.at_s for reading in found] == [1000.0, 1060.0, 1120.0]
    assert [reading.histograms[Family.TTFT].count for reading in found] == [10, 20, 30]
    assert engines.scrapes == 3
    assert await engines.source.gpu_windows(serving(1)) == {}


async def test_pods_that_are_scraped_at_the_same_time_are_all_remembered():
    engines = Engines(1, 2, 3)
    for _ in range(3):
        await engines.source.engine_metrics(serving(1, 2, 3))
        engines.now_s += 60
    readings = await engines.source.readings(serving(1, 2, 3))
    assert {name: len(found) for name, found in readings.items()} == {"chat-1": 3, "chat-2": 3, "chat-3": 3}


async def test_a_large_fleet_is_remembered_by_a_bounded_number_of_scrapes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(direct, "MOST_SCRAPES", 40)
    numbers = range(1, 9)
    engines = Engines(*numbers)
    for _ in range(20):
        await engines.source.engine_metrics(serving(*numbers))
        engines.now_s += 60
    lengths = {len(found) for found in (await engines.source.readings(serving(*numbers))).values()}
    assert max(lengths) <= 40 // 8 + 1
    assert min(lengths) >= LEAST_SCRAPES
