"""Whatever a server sends, in whatever pieces: a request ends exactly once, and its row can be true.

`python -m tests.fuzz.sse_reader [-max_total_time=60 …]`; options are those of libFuzzer. The first
byte of an input says how the server ends and whether it writes HTTP or only the events of a good answer, the second
into how many pieces its bytes are cut, one byte for each piece tells its length, and the rest is what it sends.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import atheris

from tests.fuzz import corpus_arguments

with atheris.instrument_imports(include=["kneekeeper.load"]):
    from kneekeeper.api.stage import Outcome
    from kneekeeper.load.answers import read_exchange
    from kneekeeper.load.frames import Ending, decode_report, encode_report
    from kneekeeper.load.protocol import Connection, Listener, Pending
    from kneekeeper.load.sender import exchange_of
    from kneekeeper.load.wire import Receiver, Wire

_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = b'data: {"choices":[{"text":"a"}],"usage":{"completion_tokens":1,"prompt_tokens":2}}\n\n'
_DONE = b"data: [DONE]\n\n"
_ONLY_EVENTS = 3
SEEDS = (
    b"\x00\x00" + _HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(_EVENT + _DONE), _EVENT + _DONE),
    b"\x01\x02\x05\x09HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n" + _DONE,
    b'\x02\x00HTTP/1.1 400 X\r\ncontent-length: 32\r\n\r\n{"error":{"message":"too long"}}',
    b"\x00\x00HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 X\r\nupgrade: h2c\r\n\r\n",
    b"\x03\x02\x60\x60: ping\r\n\r\nid: 1\r\n" + _EVENT + _EVENT + _DONE,
    b'\x04\x00data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n' + _DONE,
    b'\x05\x00data: {"error":{"message":"no","code":500}}\n\n',
)
WORDS = (
    "data: ",
    "[DONE]",
    '"choices"',
    '"delta"',
    '"role"',
    '"content"',
    '"text"',
    '"usage"',
    '"error"',
    "\n\n",
)


class _Wire(Wire):
    """Sends nothing, and remembers that it was closed."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False

    def start(self, receiver: Receiver) -> None:
        pass

    def send(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.closed = True


@dataclass
class _Ends(Listener):
    ended: list[Pending] = field(default_factory=list)

    def on_end(self, connection: Connection, pending: Pending) -> None:
        self.ended.append(pending)


def check(data: bytes) -> None:
    """Feed one input. Raises AssertionError where a promise is broken."""
    how, pieces = (*data[:2], 0, 0)[:2]
    lengths, sent = data[2 : 2 + pieces], data[2 + pieces :]
    if how >= _ONLY_EVENTS and sent:
        sent = _HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(sent), sent)
    cuts = [min(at, len(sent)) for at in accumulate(lengths)]
    wire, ends = _Wire(), _Ends()
    connection = Connection(ends, wire)
    connection.send(Pending(0, 1.0, 9.0), b"")
    now_s = 2.0
    for begin, end in pairwise([0, *cuts, len(sent)]):
        now_s += 0.5
        if end > begin and not wire.closed:
            connection.data_received(sent[begin:end], now_s)
    match how % _ONLY_EVENTS:
        case _ if wire.closed:
            pass
        case 0:
            connection.eof_received()
        case 1:
            connection.connection_lost(ConnectionResetError("reset"))
        case _:
            connection.end(Ending.TIMED_OUT, "too late")
    assert len(ends.ended) == 1, "a request ends exactly once"
    assert connection.pending is None
    assert wire.closed is not connection.usable, "what is closed is not used again"
    exchange = exchange_of(ends.ended[0])
    assert decode_report(encode_report(exchange)[4:]) == exchange, "the way to the agent changes nothing"
    row = read_exchange(exchange, 1.0, 16, 1)
    assert all(map(math.isfinite, (row.sent_s, row.first_s, row.last_s)))
    if row.outcome is Outcome.OK:
        assert (row.status, row.problem) == (200, "")
        assert row.chunks >= 1
        assert 0 < row.first_s <= row.last_s <= now_s - 1.0
        assert 0 <= row.first_chunk_tokens <= max(row.output_tokens, 1)
    else:
        assert row.problem, "a failure says what failed"


def main() -> None:
    atheris.Setup([*sys.argv, *corpus_arguments("sse_reader", SEEDS, WORDS)], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
