"""`status --watch`: what is told of a fleet that changes, and a look at it after each change."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration
from rich.text import Text

from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.cli.cluster import MOST_TROUBLES, Scope
from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.main import parser_of
from kneekeeper.cli.show.changes import Changes, fitted
from kneekeeper.cli.show.listing import Detail
from kneekeeper.cli.status_watch import looks
from kneekeeper.domain.views.fleet import FleetRow, Limits, row_of
from kneekeeper.kube.client import Kube
from kneekeeper.kube.errors import ServerTrouble
from kneekeeper.observe.own_resources import UnreadableResource
from tests.unit.cli import recorded

AT = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def row() -> FleetRow:
    return row_of(recorded.profile())


def told(changes: Changes, *rows: FleetRow) -> list[str]:
    return [line.plain for line in changes.lines(rows, AT)]


def test_a_profile_is_told_as_it_is_and_then_by_what_became_different(row):
    changes = Changes(Detail.USUAL)
    (first,) = told(changes, row)
    assert first.startswith(
        "2026-01-01T12:30:00Z prod/chat: TARGET Deployment/chat; STATE BelowTheKnee; LIMITS 72/384;"
    )
    assert told(changes, row) == []
    measuring = replace(row, active_run="chat-2", stage="Ramp", in_force=Limits(64, None))
    assert told(changes, measuring) == [
        "2026-01-01T12:30:00Z prod/chat: STATE Ramp, was BelowTheKnee; LIMITS 64/default, was 72/384"
    ]


def test_what_is_not_shown_is_no_change(row):
    changes = Changes(Detail.USUAL)
    told(changes, row)
    assert told(changes, replace(row, mode="Recommend")) == []
    wide = Changes(Detail.WIDE)
    told(wide, row)
    assert told(wide, replace(row, mode="Recommend")) == [
        f"2026-01-01T12:30:00Z prod/chat: MODE Recommend, was {row.mode}"
    ]


def test_profiles_that_come_and_go_are_told_alone(row):
    changes = Changes(Detail.USUAL)
    other = replace(row, namespace="staging")
    told(changes, row)
    (line,) = told(changes, row, other)
    assert " staging/chat: TARGET " in line
    assert told(changes, other) == ["2026-01-01T12:30:00Z prod/chat: gone"]


def test_a_list_beyond_the_terminal_says_how_much_is_left_out():
    lines = [Text(str(number)) for number in range(10)]
    assert fitted(lines, 10) == lines
    assert [line.plain for line in fitted(lines, 4)] == [
        "0", "1", "2", "and 7 more lines; a taller terminal shows them",
    ]  # fmt: skip


def test_programs_are_sent_to_kubectl():
    arguments = parser_of("kneekeeper").parse_args(["status", "--watch", "-o", "json"])
    with pytest.raises(CannotError, match="kubectl get servingprofiles --watch"):
        arguments.run(arguments)


def profile(name: str, stage: str = "BelowTheKnee") -> dict[str, Any]:
    body = copy.deepcopy(recorded.objects()[0])
    body["metadata"]["name"] = name
    body["status"]["stage"] = stage
    return body


class Api:
    """Answers each list, and each watch, with the next of a story; 503 where there is none."""

    def __init__(self) -> None:
        self.lists: list[list[dict[str, Any]] | None] = []
        self.watches: list[list[tuple[str, dict[str, Any]]]] = []
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.query.get("fieldSelector", ""))
        if "watch" in request.query:
            events = self.watches.pop(0) if self.watches else []
            text = "".join(json.dumps({"type": kind, "object": body}) + "\n" for kind, body in events)
            return web.Response(text=text)
        items = self.lists.pop(0) if self.lists else None
        if items is None:
            return web.json_response({"message": "later"}, status=503, headers={"Retry-After": "7"})
        return web.json_response({"items": items, "metadata": {"resourceVersion": "7"}})


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def scope(api: Api) -> AsyncIterator[Scope]:
    app = web.Application()
    app.add_routes([web.get("/{path:.*}", api.answer)])
    async with (
        TestServer(app) as server,
        Kube(Configuration(host=str(server.make_url("")).rstrip("/")), "test") as kube,
    ):
        yield Scope(kube, "prod")


async def stages(profiles: Sequence[ServingProfile]) -> dict[str, str]:
    return {each.metadata["name"]: each.status.stage for each in profiles}


async def test_there_is_a_look_now_and_after_each_change_and_through_troubles(api: Api, scope: Scope):
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    api.lists = [[profile("a")], None, [profile("a", "Ramp"), profile("c")]]
    api.watches = [[("ADDED", profile("b")), ("MODIFIED", profile("a", "Ramp")), ("DELETED", profile("b"))]]
    seen: list[dict[str, str]] = []

    async def follow() -> None:
        async for look in looks(scope, None, stages, sleep):
            seen.append(look)

    with pytest.raises(ServerTrouble):
        await follow()
    assert seen == [
        {"a": "BelowTheKnee"},
        {"a": "BelowTheKnee", "b": "BelowTheKnee"},
        {"a": "Ramp", "b": "BelowTheKnee"},
        {"a": "Ramp"},
        {"a": "Ramp", "c": "BelowTheKnee"},
    ]
    assert slept == [7.0] * (1 + MOST_TROUBLES)
    assert set(api.asked) == {""}


async def test_one_profile_is_asked_for_by_its_name(api: Api, scope: Scope):
    api.lists = [[profile("chat")]]
    async for look in looks(scope, "chat", stages):
        assert look == {"chat": "BelowTheKnee"}
        break
    assert api.asked == ["metadata.name=chat"]


def of_another_version(name: str) -> dict[str, Any]:
    body = profile(name)
    body["spec"]["slo"] = {"p99TTFT": ["not a duration"]}
    return body


async def followed(scope: Scope, name: str | None, ends_with: type[Exception]) -> list[dict[str, str]]:
    """All looks until that error."""
    seen: list[dict[str, str]] = []

    async def sleep(_: float) -> None:
        pass

    async def follow() -> None:
        async for look in looks(scope, name, stages, sleep):
            seen.append(look)

    with pytest.raises(ends_with):
        await follow()
    return seen


async def test_among_many_one_that_cannot_be_read_any_more_stays_as_it_was(
    api: Api, scope: Scope, capsys: pytest.CaptureFixture[str]
):
    api.lists = [[profile("a"), of_another_version("never")], [of_another_version("a")], []]
    api.watches = [[("MODIFIED", of_another_version("a"))]]
    same = {"a": "BelowTheKnee"}
    assert await followed(scope, None, ServerTrouble) == [same, same, same, {}]
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(", of namespace")[0] for line in told] == ["left out", "shown as it was"]


@pytest.mark.parametrize("how", ["list", "watch"])
async def test_the_one_that_is_watched_and_cannot_be_read_any_more_is_an_error_and_not_gone(
    api: Api, scope: Scope, how: str
):
    api.lists = [[profile("chat")], [of_another_version("chat")]]
    api.watches = [[("MODIFIED", of_another_version("chat"))] if how == "watch" else []]
    assert await followed(scope, "chat", UnreadableResource) == [{"chat": "BelowTheKnee"}]
