from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.load.frames import (
    Ending,
    Exchange,
    Finished,
    FrameError,
    FrameSplitter,
    Loop,
    Order,
    Plan,
    Ready,
    Refused,
    Report,
    Scheme,
    Started,
    Tick,
    decode_report,
    encode_report,
    framed,
)

seconds = st.floats(0, 1e6)
counts = st.integers(0, 2**32 - 1)


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    pieces = draw(st.lists(st.tuples(seconds, st.binary(max_size=20)), max_size=10))
    return Exchange(
        draw(counts),
        draw(st.sampled_from(Ending)),
        draw(st.integers(0, 999)),
        draw(seconds),
        draw(seconds),
        draw(seconds),
        array("d", [at for at, _ in pieces]),
        array("I", [len(piece) for _, piece in pieces]),
        b"".join(piece for _, piece in pieces),
        draw(st.text(max_size=50)),
    )


reports: st.SearchStrategy[Report] = st.one_of(
    st.just(Ready()),
    st.builds(Started, seconds),
    st.builds(Refused, st.text(max_size=50)),
    st.builds(Tick, seconds, seconds, counts, counts, counts, counts, seconds),
    exchanges(),
    st.just(Finished()),
)


@given(st.lists(reports, max_size=8), st.lists(st.integers(1, 200), min_size=1))
def test_reports_survive_the_way_however_the_bytes_are_cut(sent, sizes):
    stream, splitter, received = b"".join(map(encode_report, sent)), FrameSplitter(), []
    at = turn = 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        received += [decode_report(frame) for frame in splitter.feed(stream[at : at + size])]
        at, turn = at + size, turn + 1
    assert received == sent


names = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)
plans = st.builds(
    Plan,
    loop=st.sampled_from(Loop),
    users=counts,
    rate=seconds,
    orders=counts,
    request_timeout_s=seconds,
    port=st.integers(0, 65535),
    host=st.just("::1"),
    scheme=st.sampled_from(Scheme),
    server_name=names,
    ca_file=names,
)


@given(plans)
def test_a_plan_survives_the_way(plan):
    assert Plan.decode(plan.encode()) == plan


@given(counts, seconds, st.binary(max_size=200))
def test_an_order_survives_the_way(index, intended_s, request):
    order = Order(index, intended_s, request)
    assert Order.decode(order.encode()) == order


@given(st.binary(max_size=80))
def test_bytes_that_are_no_report_are_an_error_of_ours(payload):
    try:
        report = decode_report(payload)
    except FrameError:
        return
    assert isinstance(report, Report)


def test_an_absurd_length_is_refused_before_it_is_read():
    with pytest.raises(FrameError, match="longer than any"):
        FrameSplitter().feed(b"\xff\xff\xff\xff")
    assert FrameSplitter().feed(framed(b"")) == [b""]
