"""A command line before a real API server, with a namespace in which a profile was measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

from kneekeeper.cli.main import main
from kneekeeper.kube.client import Kube
from kneekeeper.kube.resources import SERVING_PROFILES, TUNING_RUNS, Resource
from tests.integration.place import make_place
from tests.unit.cli import recorded
from tests.unit.kube_objects import TEMPLATE

RUN = recorded.objects()[1]["metadata"]["name"]
HASH = recorded.objects()[0]["status"]["recommendation"]["hash"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Desk:
    """A namespace with a profile that was measured, its run and its workload, and a command line that knows it."""

    kubeconfig: str
    namespace: str
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        code = main([*words, "--kubeconfig", self.kubeconfig])
        told = self.capsys.readouterr()
        return code, told.out, told.err

    def here(self, *words: str) -> tuple[int, str, str]:
        return self.run(*words, "-n", self.namespace)

    def asks(self, work: Callable[[Kube], Awaitable[Result]]) -> Result:
        return asyncio.run(with_kube(self.kubeconfig, work))

    def profile(self) -> Resource:
        return self.asks(lambda kube: kube.get(SERVING_PROFILES, self.namespace, "shop"))


async def with_kube(kubeconfig: str, work: Callable[[Kube], Awaitable[Result]]) -> Result:
    """What `work` makes of a client of its own."""
    async with await Kube.connect("test", kubeconfig) as kube:
        return await work(kube)


async def furnish(kube: Kube) -> str:
    """The recorded objects in a namespace of their own, under the name `shop`."""
    place = await make_place(kube)
    profile, run = recorded.objects()
    await place.deploy(TEMPLATE)
    profile["metadata"] = {"name": "shop", "namespace": place.namespace}
    run["metadata"] = {"name": RUN, "namespace": place.namespace}
    run["spec"]["profileName"] = "shop"
    for kind, body in ((SERVING_PROFILES, profile), (TUNING_RUNS, run)):
        made = await kube.create(kind, place.namespace, {k: v for k, v in body.items() if k != "status"})
        await kube.replace_status(kind, place.namespace, made["metadata"]["name"], {**made, "status": body["status"]})
    return place.namespace
