"""Queries to one Prometheus server, which may be down, slow, or no Prometheus at all.

A profile may name any server, so none may hold up what is looked at beside it: each query has a thread of its own and
answers are bounded in time and bytes, and a server that did not answer is not asked again for a while, by nobody.
"""

from __future__ import annotations

import asyncio
import io
import math
import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Thread
from time import monotonic
from typing import Any, Protocol

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from kneekeeper.observe.metrics import MetricsUnreachable

CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 10.0
"""Between two pieces of an answer."""

TIMEOUT_S = 20.0
"""For a query, and before it for those that were asked first."""

SILENT_S = 10.0
"""A server that did not answer is not asked again for so long: else all profiles that read from it wait in turn."""

LARGEST_ANSWER_BYTES = 64 * 2**20

_LAST_TIME_S = 253_402_300_799.0
"""The end of the year 9999: what is later is no time."""

Row = dict[str, Any]
"""One series of an answer: its labels under `metric`, and `value` or `values`."""


class InstantQueries(Protocol):
    """What is used of `PrometheusConnect`: one instant query, synchronous."""

    def custom_query(self, query: str) -> list[Row]:
        """The result."""


class AnswerTooLong(requests.RequestException):
    """More bytes than any query of ours asks for."""


class Queries:
    """The queries to one server, one at a time. All raise MetricsUnreachable."""

    def __init__(
        self, url: str, client: InstantQueries | None = None, clock_s: Callable[[], float] = monotonic
    ) -> None:
        self.url = url.rstrip("/")
        self._client = client if client is not None else _connect(self.url)
        self._clock_s = clock_s
        self._one_at_a_time = asyncio.Lock()  # a requests session is not safe between threads
        self._asking: Future[list[Row]] | None = None
        self._silent_until_s, self._why = -math.inf, ""

    async def vector(self, query: str) -> list[Row]:
        """Series with one `value` each."""
        return await self._answer(query, lambda row: [row["value"]])

    async def matrix(self, query: str) -> list[Row]:
        """Series with `values` each."""
        return await self._answer(query, lambda row: row["values"])

    async def _answer(self, query: str, points: Callable[[Row], Iterable[Any]]) -> list[Row]:
        try:
            async with asyncio.timeout(TIMEOUT_S) as patience, self._one_at_a_time:
                patience.reschedule(asyncio.get_running_loop().time() + TIMEOUT_S)
                rows = await self._asked(query)
            _check(rows, points)
        except TimeoutError:
            raise MetricsUnreachable(self.url, "it did not answer in time") from None
        except (AttributeError, KeyError, TypeError, ValueError):
            raise MetricsUnreachable(self.url, "its answer is not one of Prometheus") from None
        except requests.RequestException as error:
            raise MetricsUnreachable(self.url, type(error).__name__) from error
        except PrometheusApiClientException as error:
            # The exception's text holds the answer's body, which may be anything.
            code = re.search(r"HTTP Status Code (\d{3})", str(error))
            why = f"HTTP {code[1]}" if code else "an error"
            raise MetricsUnreachable(self.url, f"it answered with {why}") from None
        return rows

    async def _asked(self, query: str) -> list[Row]:
        if self._clock_s() < self._silent_until_s:
            raise MetricsUnreachable(self.url, self._why)
        if self._asking is not None and not self._asking.done():
            raise MetricsUnreachable(self.url, "it still answers an earlier query")
        self._asking = _in_a_thread(self._client.custom_query, query)
        try:
            return await asyncio.wrap_future(self._asking)
        except asyncio.CancelledError:
            self._fell_silent("it did not answer in time")
            raise
        except (requests.ConnectionError, requests.Timeout, AnswerTooLong) as error:
            self._fell_silent(type(error).__name__)
            raise

    def _fell_silent(self, why: str) -> None:
        self._silent_until_s, self._why = self._clock_s() + SILENT_S, why


def _in_a_thread(ask: Callable[[str], list[Row]], query: str) -> Future[list[Row]]:
    """A thread of its own, which a server that hangs keeps from nobody, and which keeps no process from ending."""
    answer: Future[list[Row]] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(ask(query))
        except Exception as error:
            answer.set_exception(error)

    Thread(target=run, name="prometheus", daemon=True).start()
    return answer


def _check(rows: list[Row], points: Callable[[Row], Iterable[Any]]) -> None:
    """Raises AttributeError, KeyError, TypeError or ValueError where a row is none of Prometheus'."""
    for row in rows:
        labels = row["metric"]
        if not all(isinstance(label, str) for label in labels.values()):
            raise TypeError("a label is no text")
        float(labels.get("le", "0"))
        for at_s, value in points(row):
            float(value)
            if not 0 <= float(at_s) <= _LAST_TIME_S:
                raise ValueError("a time is none")


class _Bounded(HTTPAdapter):
    """Reads no more of an answer than any query of ours asks for."""

    def send(self, request: requests.PreparedRequest, **how: Any) -> requests.Response:  # type: ignore[override]
        response = super().send(request, **(how | {"stream": True}))
        try:
            body = response.raw.read(LARGEST_ANSWER_BYTES + 1, decode_content=True)
        except HTTPError as error:
            raise requests.ConnectionError(type(error).__name__) from error
        if len(body) > LARGEST_ANSWER_BYTES:
            response.close()
            raise AnswerTooLong(f"more than {LARGEST_ANSWER_BYTES} bytes")
        response.raw = io.BytesIO(body)
        return response


def _connect(url: str) -> InstantQueries:
    session = requests.Session()
    session.max_redirects = 0
    retry = Retry(total=0)  # a tick that failed is simply done again: retries would only hold it up
    timeout = (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
    client: InstantQueries = PrometheusConnect(url=url, session=session, retry=retry, timeout=timeout, method="POST")
    session.mount(url, _Bounded(max_retries=retry))  # in place of the library's own
    return client
