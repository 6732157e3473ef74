"""Whatever a server sends, a request ends exactly once, and what arrived before the end is kept with its time."""

from __future__ import annotations

import itertools
from array import array

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.api.stage import Outcome
from kneekeeper.load.answers import Row, read_exchange
from kneekeeper.load.frames import Ending, Exchange
from kneekeeper.load.protocol import Connection, Listener, Pending
from kneekeeper.load.sender import exchange_of
from kneekeeper.load.wire import Receiver, Wire


class FakeWire(Wire):
    """Remembers whether it was aborted, and sends nothing."""

    __slots__ = ("aborted",)

    def __init__(self) -> None:
        self.aborted = False

    def start(self, receiver: Receiver) -> None:
        pass

    def send(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


class Ends(Listener):
    def __init__(self) -> None:
        self.ended: list[Pending] = []
        self.first_answers = 0
        self.answers = 0

    def on_first_answer(self) -> None:
        self.first_answers += 1

    def on_answer(self) -> None:
        self.answers += 1

    def on_end(self, connection: Connection, pending: Pending) -> None:
        self.ended.append(pending)


def exchange(pieces: list[bytes], *, half_close: bool = False) -> tuple[Connection, Exchange | None]:
    """Feed a connection with the pieces, after one request, and take the end of it, if there is one."""
    listener, wire = Ends(), FakeWire()
    connection = Connection(listener, wire)
    connection.send(Pending(0, 0.0, 1e9), b"GET / HTTP/1.1\r\n\r\n")
    for piece in pieces:
        if not wire.aborted:
            connection.data_received(piece, 1.0)
    if half_close and not wire.aborted:
        connection.eof_received()
    assert len(listener.ended) <= 1
    assert connection.usable is not wire.aborted
    assert listener.first_answers == (1 if listener.answers else 0)
    return connection, exchange_of(listener.ended[0]) if listener.ended else None


def row_of(pieces: list[bytes]) -> Row:
    _, ended = exchange(pieces, half_close=True)
    assert ended is not None, "the request never ended"
    return read_exchange(ended, 0.0, 16, 1)


def chunk(text: str, **more: object) -> bytes:
    return b"data: " + orjson.dumps({"object": "text_completion", "choices": [{"index": 0, "text": text}], **more})


USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
EVENTS = [
    b": ping",
    chunk("a"),
    chunk(""),
    b"event: message\r\nid: 4\r\n" + chunk("ü"),
    b"data: " + orjson.dumps({"choices": [], "usage": USAGE}),
    b"data: [DONE]",
]


def chunked(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER = HEAD + chunked([event + b"\n\n" for event in EVENTS])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if b > a]


def is_good(row: Row) -> bool:
    return (row.outcome, row.prompt_tokens, row.output_tokens, row.chunks) == (Outcome.OK, 7, 3, 3)


@pytest.mark.parametrize("at", range(1, len(ANSWER)))
def test_an_answer_may_be_split_at_any_byte(at):
    connection, ended = exchange([ANSWER[:at], ANSWER[at:]])
    assert ended is not None
    assert ended.ending is Ending.COMPLETE
    assert connection.usable
    assert is_good(read_exchange(ended, 0.0, 16, 1))


@given(st.lists(st.integers(0, 10**6), max_size=60))
def test_an_answer_may_be_split_at_many_bytes(places):
    assert is_good(row_of(cut(ANSWER, places)))


def test_an_answer_may_come_byte_by_byte_with_other_line_ends():
    answer = HEAD + chunked([event.replace(b"\r", b"") + b"\r\n\r\n" for event in EVENTS])
    assert is_good(row_of([bytes((byte,)) for byte in answer]))


@given(st.integers(0, len(ANSWER) - 1), st.lists(st.integers(0, 10**6), max_size=5))
def test_an_answer_that_breaks_off_is_a_counted_error(length, places):
    row = row_of(cut(ANSWER[:length], places))
    assert row.outcome is Outcome.ERROR
    assert row.problem
    assert row.last_s >= row.first_s


@given(st.binary(max_size=300), st.lists(st.integers(0, 10**6), max_size=5))
def test_garbage_is_a_counted_error(garbage, places):
    assert row_of(cut(garbage, places)).outcome is Outcome.ERROR


@given(st.binary(max_size=200), st.lists(st.integers(0, 10**6), max_size=5))
def test_a_garbage_body_is_a_counted_error(garbage, places):
    row = row_of(cut(HEAD + chunked([garbage] if garbage else []), places))
    assert row.outcome is Outcome.ERROR
    assert row.problem


@given(st.integers(0, len(ANSWER) - 1), st.binary(min_size=1, max_size=4), st.lists(st.integers(0, 10**6), max_size=3))
def test_a_corrupted_answer_ends_once_and_never_hangs(at, wrong, places):
    row = row_of(cut(ANSWER[:at] + wrong + ANSWER[at + len(wrong) :], places))
    assert row.outcome in (Outcome.OK, Outcome.ERROR)
    assert bool(row.problem) is (row.outcome is Outcome.ERROR)


@given(st.binary(min_size=1, max_size=100))
def test_bytes_after_an_answer_close_the_connection_but_not_the_answer(more):
    connection, ended = exchange([ANSWER + more])
    assert ended is not None
    assert ended.ending is Ending.COMPLETE
    assert is_good(read_exchange(ended, 0.0, 16, 1))
    assert not connection.usable or more.strip(b"\r\n") == b""


def test_bytes_that_nobody_asked_for_close_an_idle_connection():
    connection, _ = exchange([ANSWER])
    assert connection.usable
    connection.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n", 2.0)
    assert not connection.usable


def test_an_interim_answer_is_not_the_answer():
    assert is_good(row_of([b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER]))


def test_a_connection_that_the_server_closes_is_not_used_again():
    answer = ANSWER.replace(b"\r\ntransfer", b"\r\nconnection: close\r\ntransfer")
    connection, ended = exchange([answer])
    assert ended is not None
    assert is_good(read_exchange(ended, 0.0, 16, 1))
    assert not connection.usable


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (500, b"boom", "HTTP status 500"),
        (503, b"", "HTTP status 503"),
        (400, b'{"error":{"message":"too long","code":400}}', "HTTP status 400: too long"),
        (404, b'{"object":"error","message":"no such model"}', "HTTP status 404: no such model"),
        (422, b'{"detail":[1]}', "HTTP status 422"),
    ],
)
def test_an_http_error_is_told_with_its_message(status, body, problem):
    row = row_of([b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)])
    assert (row.outcome, row.status, row.problem) == (Outcome.ERROR, status, problem)


def stamped(pieces: list[tuple[float, bytes]], ending: Ending = Ending.COMPLETE) -> Row:
    return read_exchange(
        Exchange(
            index=0,
            ending=ending,
            status=200,
            intended_s=10.0,
            sent_s=10.5,
            ended_s=99.0,
            stamps_s=array("d", [at for at, _ in pieces]),
            lengths=array("I", [len(piece) for _, piece in pieces]),
            body=b"".join(piece for _, piece in pieces),
            problem="" if ending is Ending.COMPLETE else "broken",
        ),
        started_at=10.0,
        asked_prompt_tokens=16,
        asked_output_tokens=1,
    )


DONE = b"data: [DONE]\n\n"


def test_a_token_counts_from_when_its_line_was_complete():
    line = chunk("a") + b"\n\n"
    row = stamped([(11.0, b": hello\n\n"), (12.0, line[:10]), (13.0, line[10:]), (15.0, line + line), (16.0, DONE)])
    assert (row.intended_s, row.sent_s, row.first_s, row.last_s) == (0.0, 0.5, 3.0, 5.0)
    assert (row.chunks, row.output_tokens, row.prompt_tokens) == (3, 3, 16)


def test_without_usage_chunks_are_counted_and_with_it_the_server_is_believed():
    pieces = [(11.0, chunk("a b") + b"\n\n"), (12.0, chunk("c d") + b"\n\n")]
    assert stamped([*pieces, (13.0, DONE)]).output_tokens == 2
    usage = b"data: " + orjson.dumps({"choices": [], "usage": {"completion_tokens": 4, "prompt_tokens": 9}}) + b"\n\n"
    row = stamped([*pieces, (13.0, usage + DONE)])
    assert (row.output_tokens, row.chunks, row.prompt_tokens) == (4, 2, 9)
    assert row.last_s == 2.0


def test_usage_in_the_first_chunk_tells_how_many_tokens_it_brought():
    first = chunk("a b c", usage={"completion_tokens": 3, "prompt_tokens": 9})
    last = chunk("d", usage={"completion_tokens": 4, "prompt_tokens": 9})
    row = stamped([(11.0, first + b"\n\n"), (12.0, last + b"\n\n" + DONE)])
    assert (row.first_chunk_tokens, row.output_tokens) == (3, 4)


def test_chunks_that_are_received_at_once_are_one_first_chunk():
    """Else a client that reads late would report a faster decode."""
    line = chunk("a") + b"\n\n"
    row = stamped([(11.0, line + line + line), (12.0, line), (13.0, line + DONE)])
    assert (row.first_s, row.last_s, row.first_chunk_tokens, row.output_tokens) == (1.0, 3.0, 3, 5)


def test_a_chats_first_chunk_that_names_only_the_role_is_no_token():
    def delta(**values: object) -> bytes:
        return b"data: " + orjson.dumps({"choices": [{"delta": values}]}) + b"\n\n"

    row = stamped(
        [(11.0, delta(role="assistant", content="")), (12.0, delta(content="a")), (13.0, delta(reasoning="b") + DONE)]
    )
    assert (row.first_s, row.last_s, row.chunks) == (2.0, 3.0, 2)
    assert stamped([(11.0, delta(role="assistant", content="a") + DONE)]).chunks == 1


def test_an_error_within_the_stream_is_a_failure():
    error = b'data: {"error":{"message":"engine died","code":500}}\n\n'
    row = stamped([(11.0, chunk("a") + b"\n\n"), (12.0, error + DONE)])
    assert row.outcome is Outcome.ERROR
    assert "engine died" in row.problem
    assert (row.first_s, row.last_s) == (1.0, 89.0)


def test_a_stream_without_tokens_or_without_end_is_a_failure():
    assert stamped([(11.0, DONE)]).problem == "the stream brought no token"
    assert stamped([(11.0, chunk("a") + b"\n\n")]).problem == "the stream ended without [DONE]"


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [(Ending.TIMED_OUT, Outcome.TIMEOUT), (Ending.ABORTED, Outcome.ABORTED), (Ending.BROKEN, Outcome.ERROR)],
)
def test_a_request_that_was_broken_off_keeps_its_first_token(ending, outcome):
    row = stamped([(11.0, chunk("a") + b"\n\n")], ending)
    assert (row.outcome, row.first_s, row.last_s, row.problem) == (outcome, 1.0, 89.0, "broken")
    assert stamped([], ending).first_s == 89.0
