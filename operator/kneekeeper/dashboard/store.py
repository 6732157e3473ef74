"""The last known state of everything that the page shows, and who waits for its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.domain.views.key import Key
from kneekeeper.domain.views.profile import EventNote


class About(StrEnum):
    """What an Event is about."""

    PROFILE = "ServingProfile"
    RUN = "TuningRun"


@dataclass(eq=False)
class Subscription:
    """Profiles that changed since they were last taken; many changes of one are one."""

    _changed: set[Key] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, key: Key) -> None:
        self._changed.add(key)
        self._wake.set()

    async def take(self) -> set[Key]:
        """What changed; waits until something did."""
        await self._wake.wait()
        self._wake.clear()
        changed, self._changed = self._changed, set()
        return changed


MOST_EVENTS = 200
"""Of one object; older ones are forgotten."""


class Store:
    """Within one event loop. Whoever subscribes is told which profiles changed, not how."""

    def __init__(self) -> None:
        self._profiles: dict[Key, ServingProfile] = {}
        self._runs: dict[Key, TuningRun] = {}
        self._events: dict[tuple[About, Key], dict[str, EventNote]] = {}
        self._subscriptions: set[Subscription] = set()

    def profiles(self) -> list[ServingProfile]:
        """In the order of namespaces and names."""
        return [self._profiles[key] for key in sorted(self._profiles)]

    def profile(self, key: Key) -> ServingProfile | None:
        """None where there is none of this name."""
        return self._profiles.get(key)

    def run(self, key: Key) -> TuningRun | None:
        """None where there is none of this name."""
        return self._runs.get(key)

    def runs_of(self, profile: Key) -> list[TuningRun]:
        """Oldest first."""
        found = [run for key, run in self._runs.items() if _profile_of(key, run) == profile]
        return sorted(found, key=lambda run: (str(run.metadata.get("creationTimestamp", "")), run.metadata["name"]))

    def events_of(self, profile: Key) -> list[EventNote]:
        """Of the profile and its runs, newest first."""
        abouts = [(About.PROFILE, profile)]
        abouts += [(About.RUN, Key.of(run.metadata)) for run in self.runs_of(profile)]
        found = [event for about in abouts for event in self._events.get(about, {}).values()]
        return sorted(found, key=lambda event: event.at, reverse=True)

    def put_profile(self, profile: ServingProfile) -> None:
        key = Key.of(profile.metadata)
        if self._profiles.get(key) != profile:
            self._profiles[key] = profile
            self._tell(key)

    def put_run(self, run: TuningRun) -> None:
        key = Key.of(run.metadata)
        if self._runs.get(key) != run:
            self._runs[key] = run
            self._tell(_profile_of(key, run))

    def put_event(self, identity: str, about: About, key: Key, event: EventNote) -> None:
        """`identity` is the Event's own name: told again, it is not shown twice. It may come before its object."""
        known = self._events.setdefault((about, key), {})
        if known.get(identity) == event:
            return
        known[identity] = event
        if len(known) > MOST_EVENTS:
            del known[min(known, key=lambda name: known[name].at)]
        run = self._runs.get(key) if about is About.RUN else None
        if about is About.PROFILE or run is not None:
            self._tell(key if run is None else _profile_of(key, run))

    def keep_profiles(self, keys: set[Key], namespace: str = "") -> None:
        """All others of the namespace are gone; empty is all namespaces."""
        for key in _within(self._profiles.keys() - keys, namespace):
            self.drop_profile(key)

    def keep_runs(self, keys: set[Key], namespace: str = "") -> None:
        """All others of the namespace are gone; empty is all namespaces."""
        for key in _within(self._runs.keys() - keys, namespace):
            self.drop_run(key)

    def drop_profile(self, key: Key) -> None:
        if self._profiles.pop(key, None) is not None:
            self._events.pop((About.PROFILE, key), None)
            self._tell(key)

    def drop_run(self, key: Key) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            self._events.pop((About.RUN, key), None)
            self._tell(_profile_of(key, run))

    @contextmanager
    def subscribed(self) -> Iterator[Subscription]:
        """Told of every change from now on."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def _tell(self, key: Key) -> None:
        for subscription in self._subscriptions:
            subscription.tell(key)


def _profile_of(key: Key, run: TuningRun) -> Key:
    return Key(key.namespace, run.spec.profile_name)


def _within(keys: set[Key], namespace: str) -> list[Key]:
    return [key for key in keys if namespace in ("", key.namespace)]
