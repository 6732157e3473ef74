"""One server of metrics holds up nobody else, and is left alone for a while when it does not answer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import requests

from kneekeeper.observe.metrics import MetricsUnreachable
from kneekeeper.observe.prometheus_queries import SILENT_S, Queries

URL = "http://prometheus.example.com/"
ROW = {"metric": {"pod": "a"}, "value": [0, "1"]}


class Client:
    """Raises what it is told to, and counts."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        self.asked = 0

    def custom_query(self, query: str) -> list[dict[str, Any]]:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return [ROW]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_server_that_did_not_answer_is_asked_again_only_after_a_while():
    client, clock = Client(requests.ReadTimeout()), Clock()
    queries = Queries(URL, client, clock)
    for _ in range(5):
        with pytest.raises(MetricsUnreachable, match="ReadTimeout"):
            await queries.vector("up")
    assert client.asked == 1
    clock.now_s, client.trouble = SILENT_S, None
    assert await queries.vector("up") == [ROW]
    assert client.asked == 2


async def test_a_server_that_refuses_one_query_is_asked_the_next():
    client = Client(requests.TooManyRedirects())
    queries = Queries(URL, client)
    for _ in range(2):
        with pytest.raises(MetricsUnreachable):
            await queries.vector("up")
    assert client.asked == 2


async def test_servers_that_hang_keep_no_thread_from_others():
    """The default executor has a few threads for all of the operator's computing."""
    released = threading.Event()

    class Hanging:
        def custom_query(self, query: str) -> list[dict[str, Any]]:
            released.wait(30)
            return []

    hanging = [asyncio.create_task(Queries(URL, Hanging()).vector("up")) for _ in range(40)]
    try:
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(lambda: "computed") == "computed"
            assert await Queries(URL, Client()).vector("up") == [ROW]
    finally:
        released.set()
        await asyncio.gather(*hanging)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"metric": {}, "values": []},
        {"metric": {}, "value": []},
        {"metric": {}, "value": [0, "x"]},
        {"metric": {}, "value": [0, None]},
        {"metric": {}, "value": ["x", "1"]},
        {"metric": {}, "value": [1e300, "1"]},
        {"metric": {}, "value": ["NaN", "1"]},
        {"metric": {"pod": 3}, "value": [0, "1"]},
        {"metric": {"le": "much"}, "value": [0, "1"]},
        {"metric": ["pod"], "value": [0, "1"]},
        [],
        "row",
    ],
    ids=str,
)
async def test_a_row_that_prometheus_does_not_write_is_no_answer(row: Any):
    class Other:
        def custom_query(self, query: str) -> Any:
            return [ROW, row]

    with pytest.raises(MetricsUnreachable, match="not one of Prometheus"):
        await Queries(URL, Other()).vector("up")
