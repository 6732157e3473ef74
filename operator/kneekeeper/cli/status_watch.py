"""`kneekeeper status --watch`: a page that changes in the terminal; elsewhere a line for each change."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.cli.cluster import MOST_TROUBLES, Scope, connected, list_profiles, namespaces_of, read_profile
from kneekeeper.cli.ending import ExitCode
from kneekeeper.cli.output import Output, detail_of, print_note
from kneekeeper.cli.show.changes import Changes, fitted
from kneekeeper.cli.show.listing import Detail
from kneekeeper.cli.show.status import fleet_lines, profile_lines
from kneekeeper.cli.standard_streams import reader_is_gone
from kneekeeper.cli.terminal import Interrupted, run_until_signal
from kneekeeper.domain.views.fleet import fleet
from kneekeeper.domain.views.key import Key
from kneekeeper.domain.views.profile import profile_view
from kneekeeper.kube.errors import ServerTrouble
from kneekeeper.kube.resources import SERVING_PROFILES, Resource
from kneekeeper.kube.watch import WatchEvent, list_page, watch
from kneekeeper.observe.own_resources import UnreadableResource, parse_profile, read_runs_of

Look = TypeVar("Look")
Profiles = Sequence[ServingProfile]


def run(arguments: argparse.Namespace) -> int:
    """Until a Ctrl-C, or until nobody reads any more. Raises CannotError."""
    try:
        run_until_signal(connected(arguments, lambda scope: _watch(scope, arguments)))
    except Interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.DONE


async def _watch(scope: Scope, arguments: argparse.Namespace) -> None:
    console, detail, name = Console(), detail_of(Output(arguments.output)), arguments.profile
    # What is not there, or may not be read, is told at once.
    await (list_profiles(scope) if name is None else read_profile(scope, name))
    if not sys.stdout.isatty():
        changes = Changes(detail)
        async for profiles in looks(scope, name, _as_they_are):
            for line in changes.lines(fleet(profiles), datetime.now(UTC)):
                console.print(line, soft_wrap=True, highlight=False)
            if reader_is_gone():
                return
        return

    async def page(profiles: Profiles) -> list[Text]:
        if not profiles:
            return [Text("There are no ServingProfiles here.")]
        if name is not None:
            return await _page(scope, profiles[0], detail)
        return fleet_lines(fleet(profiles), namespaces_of(arguments), detail)

    with Live(console=console, auto_refresh=False) as live:
        async for lines in looks(scope, name, page):
            wrapped = [part for line in lines for part in line.wrap(console, console.width)]
            live.update(Group(*fitted(wrapped, console.height - 1)), refresh=True)


async def _as_they_are(profiles: Profiles) -> Profiles:
    return profiles


async def _page(scope: Scope, profile: ServingProfile, detail: Detail) -> list[Text]:
    view = profile_view(profile, await read_runs_of(scope.kube, scope.namespace, profile.metadata["name"]), ())
    assert view is not None  # no run was asked for by name
    return list(profile_lines(view, detail, datetime.now(UTC)))


async def looks(
    scope: Scope,
    name: str | None,
    look: Callable[[Profiles], Awaitable[Look]],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Look]:
    """What `look` makes of the profiles (all, or the one of this name), now and after each change, for ever.

    An API server that is in trouble is asked again for a while. Raises KubeErrors, and UnreadableResource where the
    profile of this name cannot be read any more; among many such a one stays as it was, and that is told.
    """
    fields, troubles = "" if name is None else f"metadata.name={name}", 0
    known: dict[Key, ServingProfile] = {}
    told: set[str] = set()

    def learn(found: Resource) -> None:
        try:
            known[Key.of(found["metadata"])] = parse_profile(found)
        except UnreadableResource as error:
            if name is not None:
                raise
            key = Key.of(found["metadata"])
            state = "shown as it was" if key in known else "left out"
            note = f"{state}, of namespace {key.namespace}: {error}"
            if note not in told:
                told.add(note)
                print_note(note)

    while True:
        try:
            items, version = await list_page(scope.kube, SERVING_PROFILES, scope.namespace, fields=fields)
            for gone in known.keys() - {Key.of(each["metadata"]) for each in items}:
                del known[gone]
            for each in items:
                learn(each)
            yield await look(_in_order(known))
            troubles = 0
            async for event in watch(scope.kube, SERVING_PROFILES, scope.namespace, version, fields=fields):
                if event.type is WatchEvent.Type.DELETED:
                    known.pop(Key.of(event.object["metadata"]), None)
                else:
                    learn(event.object)
                yield await look(_in_order(known))
        except ServerTrouble as error:
            troubles += 1
            if troubles > MOST_TROUBLES:
                raise
            await sleep(error.retry_after_s)


def _in_order(known: dict[Key, ServingProfile]) -> Profiles:
    return [known[key] for key in sorted(known)]
