"""The workers of one stage: this agent's own, and one of each of its helpers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Protocol, Self

from kneekeeper.api.stage import StageSpec
from kneekeeper.domain.workload import Workload
from kneekeeper.load.frames import Command, Order, Report
from kneekeeper.load.helper import HelperWorker
from kneekeeper.load.shares import Share, plan_of
from kneekeeper.load.worker_process import WorkerProcess


@dataclass(frozen=True)
class Team:
    """The agents that may be asked for a share, by address, and the token that opens them."""

    token: str = ""
    addresses: tuple[str, ...] = ()


NOBODY = Team()


class Worker(Protocol):
    """What sends one share."""

    def reports(self) -> AsyncIterator[Report]:
        """What it tells, until it is gone. Raises FrameError."""

    def command(self, command: Command) -> None:
        """Ask for something; one that is gone does not hear it."""

    async def kill(self) -> None:
        """End it now."""


class Crew:
    """The workers by their part of the stage; the first is this agent's own."""

    def __init__(self, own: WorkerProcess, helpers: list[HelperWorker]) -> None:
        self._own, self._helpers = own, helpers
        self.workers: list[Worker] = [own, *helpers]

    @classmethod
    async def start(cls, spec: StageSpec, workload: Workload, orders: Iterable[Order], team: Team) -> Self:
        """Start all workers of a stage; `orders` are those of the first part.

        Raises OSError where this agent can start none, and HelperError where another agent does not.
        """
        own = await WorkerProcess.start(plan_of(spec, workload, Share(0, spec.agents)), orders)
        asked = [
            asyncio.create_task(HelperWorker.start(address, team.token, spec, part))
            for part, address in enumerate(team.addresses[: spec.agents - 1], start=1)
        ]
        try:
            return cls(own, list(await asyncio.gather(*asked)))
        except BaseException:
            await own.kill()
            for told in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(told, HelperWorker):
                    await told.kill()
            raise

    @property
    def pid(self) -> int:
        """Of this agent's own worker."""
        return self._own.pid

    def address_of(self, part: int) -> str:
        """Where the worker of a part runs; empty for this agent's own."""
        return self._helpers[part - 1].address if part else ""

    def command(self, command: Command) -> None:
        """Ask all workers for something, at once."""
        for worker in self.workers:
            worker.command(command)

    async def kill(self) -> None:
        """End all workers now."""
        for worker in self.workers:
            await worker.kill()
