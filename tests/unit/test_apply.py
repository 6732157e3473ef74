"""A stage is started on an agent that may still be at another one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import httpx
import orjson
import pytest
from pydantic import SecretStr

from kneekeeper.actuate import apply
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.stage import StageSpec
from kneekeeper.domain.actions import StartStage
from kneekeeper.kube.client import Kube
from kneekeeper.load.client import AgentClient
from kneekeeper.load.stage_runner import StageRunner
from tests.unit.kube_objects import tuning_run
from tests.unit.plan.pods import pod_view
from tests.unit.test_load_evidence import spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class BusyAgent:
    """Works on the stage `running`, refuses others meanwhile, and remembers what it was asked."""

    def __init__(self, running: str) -> None:
        self.running: str | None = running
        self.asked: list[str] = []

    def connect(self, host: str, port: int, token: SecretStr) -> AgentClient:
        return AgentClient(f"http://{host}:{port}", token.get_secret_value(), httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        if request.url.path == "/helpers":
            return httpx.Response(200, content=request.content)
        if request.method == "DELETE":
            self.running = None
        elif self.running is not None:
            return httpx.Response(409, content=orjson.dumps({"message": "busy", "running": self.running}))
        status = StageRunner(spec()).status()
        return httpx.Response(200, text=status.model_dump_json())


async def start(
    agent: BusyAgent, ordered: StageSpec, monkeypatch: pytest.MonkeyPatch, helpers: tuple[str, ...] = ()
) -> None:
    async def token(*_: object) -> SecretStr:
        return SecretStr("token")

    monkeypatch.setattr(apply, "read_agent_token", token)
    writers = apply.Writers(
        cast(Kube, None), agent.connect, ActuateSettings("registry.example.com/kneekeeper:1", "low")
    )
    subject = apply.RunSubject(tuning_run(), None, pod_view("agent", ContainerWords(), NOW, ""))
    await apply.perform(writers, subject, [StartStage(ordered, helpers)], NOW)


async def test_the_stage_of_a_clone_that_is_gone_makes_way_for_the_next_one(monkeypatch):
    agent, ordered = BusyAgent("ramp-8-dead"), spec()
    await start(agent, ordered, monkeypatch)
    assert agent.asked == [f"PUT /stages/{ordered.id}", "DELETE /stages/ramp-8-dead"]
    await start(agent, ordered, monkeypatch)
    assert agent.asked[2:] == [f"PUT /stages/{ordered.id}"]


async def test_the_helpers_of_a_stage_are_named_before_it_is_ordered(monkeypatch):
    agent, ordered = BusyAgent("ramp-8-dead"), spec()
    agent.running = None
    await start(agent, ordered, monkeypatch, ("10.244.2.1:8080", "10.244.2.2:8080"))
    assert agent.asked == ["PUT /helpers", f"PUT /stages/{ordered.id}"]
