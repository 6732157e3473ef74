"""The live-tuning channel and its client, over a real socket."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from kneekeeper.livetune.channel import Channel
from kneekeeper.livetune.limits import ABOVE_START, Envelope, Governor, Limits, Refusal
from kneekeeper.livetune.messages import PATH, read_refusal
from kneekeeper.load.live_limits import LimitsRefused, LiveLimits, PluginMismatch, PluginMissing

TOKEN = "a-token-of-the-run"
START = Limits(16, 256)
HOST = "127.0.0.1"


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def governor(clock: Clock) -> Governor:
    return Governor(Envelope(START, START), clock)


@pytest.fixture
def channel(governor: Governor) -> Iterator[Channel]:
    opened = Channel(token=TOKEN, engine_version="0.32.0", governor=governor, host=HOST)
    yield opened
    opened.close()


def url_of(channel: Channel) -> str:
    return f"http://{HOST}:{channel.port}"


def raw(channel: Channel, method: str, path: str = PATH, token: str = TOKEN, body: bytes | None = None) -> int:
    request = urllib.request.Request(
        url_of(channel) + path, body, {"Authorization": f"Bearer {token}"} if token else {}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        refusal = read_refusal(error.read())
        return error.code if refusal.reason and refusal.message else 0


async def test_a_change_is_wanted_at_once_and_reported_in_force_after_a_step(channel: Channel, governor: Governor):
    async with LiveLimits(url_of(channel), TOKEN) as live:
        report = await live.change(Limits(4, 64))
        assert report.standing is not None
        assert (report.standing.wanted, report.standing.in_force) == (Limits(4, 64), None)
        governor.next_step(3)
        report = await live.read()
    assert report.engine_version == "0.32.0"
    assert report.envelope == Envelope(START, START)
    assert report.standing is not None
    assert (report.standing.in_force, report.standing.running) == (Limits(4, 64), 3)


async def test_a_value_above_the_start_is_refused_with_its_reason(channel: Channel, governor: Governor):
    async with LiveLimits(url_of(channel), TOKEN) as live:
        with pytest.raises(LimitsRefused) as refused:
            await live.change(Limits(17, 64))
    assert refused.value.refusal.reason == ABOVE_START
    assert governor.next_step(0) == START


@pytest.mark.parametrize("token", ["", "another", TOKEN + "x", "ünïcode"])
def test_without_the_token_nothing_is_told_or_changed_and_it_is_no_heartbeat(
    channel: Channel, governor: Governor, clock: Clock, token: str
):
    governor.ask(Limits(4, 64))
    clock.now_s = 61.0
    body = json.dumps({"max_num_seqs": 2, "max_num_batched_tokens": 64}).encode()
    encoded = token.encode().decode("latin-1")
    for method, path, sent in (("GET", PATH, None), ("PUT", PATH, body), ("GET", "/", None)):
        assert raw(channel, method, path, encoded, sent) == 401
    assert governor.next_step(0) == START


async def test_another_token_is_a_mismatch_for_the_client(channel: Channel):
    async with LiveLimits(url_of(channel), "another") as live:
        with pytest.raises(PluginMismatch, match="HTTP 401"):
            await live.read()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"4",
        b"\xff\xfe",
        b'{"max_num_seqs": 4}',
        b'{"max_num_seqs": 4, "max_num_batched_tokens": "64"}',
        b'{"max_num_seqs": true, "max_num_batched_tokens": 64}',
        b'{"max_num_seqs": 4.0, "max_num_batched_tokens": 64}',
        b'{"max_num_seqs": 4, "max_num_batched_tokens": 64, "more": 1}',
        b" " * 5000,
    ],
)
def test_a_body_that_is_no_setting_is_refused(channel: Channel, governor: Governor, body: bytes):
    assert raw(channel, "PUT", body=body) == 400
    assert governor.standing().changes == 0


def test_there_is_one_path_and_two_methods(channel: Channel):
    assert raw(channel, "GET", "/") == 404
    request = urllib.request.Request(url_of(channel) + PATH, b"{}", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(request, timeout=10)


async def test_peers_that_say_nothing_keep_it_busy_for_a_moment_only(channel: Channel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kneekeeper.livetune.channel._Handler.timeout", 0.05)
    silent = [socket.create_connection((HOST, channel.port)) for _ in range(3)]
    try:
        async with LiveLimits(url_of(channel), TOKEN) as live:
            assert (await live.read()).standing is not None
    finally:
        for connection in silent:
            connection.close()


async def test_an_engine_that_cannot_be_tuned_live_says_why_and_takes_nothing():
    unsupported = Refusal("UnsupportedVersion", "vLLM 0.99 is not known.")
    channel = Channel(token=TOKEN, engine_version="0.99.0", unsupported=unsupported, host=HOST)
    try:
        async with LiveLimits(url_of(channel), TOKEN) as live:
            assert (await live.read()).unsupported == unsupported
            with pytest.raises(LimitsRefused, match="not known"):
                await live.change(Limits(4, 64))
    finally:
        channel.close()


async def test_no_plugin_at_all_is_told_from_one_that_refuses():
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    async with LiveLimits(f"http://{HOST}:{port}", TOKEN) as live:
        with pytest.raises(PluginMissing):
            await live.read()


async def test_an_answer_of_another_protocol_is_a_mismatch():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"protocol":1}')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    async with server, LiveLimits(f"http://{HOST}:{server.sockets[0].getsockname()[1]}", TOKEN) as live:
        with pytest.raises(PluginMismatch, match="protocol 1"):
            await live.read()


def test_a_channel_without_a_token_is_not_opened(governor: Governor):
    with pytest.raises(ValueError, match="token"):
        Channel(token="", engine_version="0.32.0", governor=governor, host=HOST)


def test_pods_of_either_address_family_are_reached(governor: Governor):
    channel = Channel(token=TOKEN, engine_version="0.32.0", governor=governor)
    try:
        assert raw(channel, "GET") == 200
    finally:
        channel.close()


async def test_without_a_token_it_tells_everybody_and_takes_nothing_from_anybody(governor: Governor):
    channel = Channel(token=None, engine_version="0.32.0", governor=governor, host=HOST)
    try:
        for token in ("", "any"):
            async with LiveLimits(url_of(channel), token) as live:
                report = await live.read()
                assert report.standing is not None
                assert report.standing.wanted == START
                with pytest.raises(PluginMismatch, match="405"):
                    await live.change(Limits(4, 64))
    finally:
        channel.close()
    assert governor.next_step(0) == START
