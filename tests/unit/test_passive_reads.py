"""When production's record is read for a run, and what is told where it cannot be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kneekeeper.api.serving_profile import ServingProfile, ServingProfileSpec
from kneekeeper.api.tuning_run import RunStep, TuningRun, TuningRunSpec
from kneekeeper.domain.observation import Unreachable
from kneekeeper.observe import passive
from kneekeeper.observe.clients import Clients
from kneekeeper.observe.metrics import MetricsUnreachable, ServingPods
from kneekeeper.observe.target import ReadWorkload
from tests.unit.plan.circumstances import PROFILE_SPEC
from tests.unit.plan.world import at_step

SERVING = ServingPods("prod", (), 8000)


class Source:
    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    def of(self, _: object) -> Source:
        return self

    async def records(self, serving: ServingPods) -> Any:
        assert serving is SERVING
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def profile(*allow: str) -> ServingProfile:
    spec = ServingProfileSpec.model_validate(PROFILE_SPEC | {"probe": {"allow": list(allow)}})
    return ServingProfile(metadata={"name": "chat", "namespace": "prod"}, spec=spec)


def new_run() -> TuningRun:
    return TuningRun(metadata={"name": "run", "namespace": "prod"}, spec=TuningRunSpec(profile_name="chat"))


async def read(source: Source, run: TuningRun, seen: ServingProfile, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def serving(*_: object) -> ServingPods:
        return SERVING

    monkeypatch.setattr(passive, "read_serving", serving)
    clients = cast(Clients, SimpleNamespace(metrics=source))
    return await passive.read_records(clients, run, seen, cast(ReadWorkload, None))


async def test_it_is_read_before_a_run_that_may_be_passive_alone(monkeypatch: pytest.MonkeyPatch):
    source = Source(())
    assert await read(source, new_run(), profile("Clone", "BorrowReplica"), monkeypatch) is None
    assert source.asked == 0
    assert await read(source, new_run(), profile("Clone", "Passive"), monkeypatch) == ()
    assert source.asked == 1


async def test_a_run_on_a_clone_reads_none_later(monkeypatch: pytest.MonkeyPatch):
    run = at_step(RunStep.CEILING).last_run
    source = Source(())
    assert await read(source, run, profile("Clone", "Passive"), monkeypatch) is None
    assert source.asked == 0


async def test_a_server_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch):
    found = await read(Source(MetricsUnreachable("http://p", "HTTP 503")), new_run(), profile("Passive"), monkeypatch)
    assert isinstance(found, Unreachable)
    assert "HTTP 503" in found.why


async def test_a_source_without_history_is_none(monkeypatch: pytest.MonkeyPatch):
    assert await read(Source(None), new_run(), profile("Passive"), monkeypatch) is None
