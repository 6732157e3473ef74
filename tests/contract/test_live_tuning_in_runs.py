"""What a run reads and sets through the channel of its clone's plugin, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

import httpx
import pytest
from pydantic import SecretStr

from kneekeeper.actuate import apply
from kneekeeper.actuate.settings import ActuateSettings
from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.tuning_run import RunStep, TuningRun
from kneekeeper.domain.actions import SetLimits
from kneekeeper.domain.observation import Unreachable
from kneekeeper.kube.client import Kube
from kneekeeper.livetune.channel import Channel
from kneekeeper.livetune.limits import Envelope, Governor, Limits
from kneekeeper.livetune.messages import Report
from kneekeeper.load.client import AgentClient
from kneekeeper.load.live_limits import LimitsRefused, LiveLimits, connect_live
from kneekeeper.observe import run_reads
from kneekeeper.observe.clients import Clients
from tests.unit.kube_objects import tuning_run
from tests.unit.plan.pods import pod_view

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "a-token-of-the-run"
START = Limits(16, 256)
NO_KUBE = cast(Kube, None)
CLONE = pod_view("clone-1", ContainerWords(), NOW, "")


@pytest.fixture
def governor() -> Governor:
    return Governor(Envelope(START, START), lambda: 0.0)


@pytest.fixture
def channel(governor: Governor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    async def token(*_: object) -> SecretStr:
        return SecretStr(TOKEN)

    monkeypatch.setattr(apply, "read_agent_token", token)
    monkeypatch.setattr(run_reads, "read_agent_token", token)
    opened = Channel(token=TOKEN, engine_version="0.32.0", governor=governor, host="127.0.0.1")
    yield opened
    opened.close()


class Connected:
    """Connects to the channel whatever the address, and keeps which it was."""

    def __init__(self, channel: Channel) -> None:
        self.hosts: list[str] = []
        self._url = f"http://127.0.0.1:{channel.port}"

    def __call__(self, host: str, token: SecretStr) -> LiveLimits:
        self.hosts.append(host)
        return LiveLimits(self._url, token.get_secret_value())


def run_at(step: RunStep, live_tuning: str = "Allowed") -> TuningRun:
    run = tuning_run(probe={"liveTuning": live_tuning})
    return run.with_changes(status=run.status.with_changes(step=step))


def as_production_is(step: RunStep) -> TuningRun:
    run = run_at(step, "Disabled")
    assert run.status.plan is not None
    plan = run.status.plan.with_changes(live_start=Setting(max_num_seqs=16, max_num_batched_tokens=256))
    return run.with_changes(status=run.status.with_changes(plan=plan))


async def set_limits(connected: Connected, setting: Setting) -> None:
    writers = apply.Writers(NO_KUBE, _no_agent, ActuateSettings("registry.example.com/kneekeeper:1", "low"), connected)
    subject = apply.RunSubject(run_at(RunStep.BASELINE), None, None)
    await apply.perform(writers, subject, [SetLimits("10.244.0.9", setting)], NOW)


async def read(connected: Connected, run: TuningRun) -> Report | Unreachable | None:
    children = run_reads.Children(clone=CLONE, clone_starts=(1,), agent=None, helpers=(), agent_exists=False)
    async with httpx.AsyncClient() as http:
        return await run_reads.read_live(Clients(NO_KUBE, http, connect_live=connected), run, children)


def _no_agent(*_: object) -> AgentClient:
    raise AssertionError("no load agent is asked")


async def test_what_a_run_sets_is_what_it_reads(channel: Channel, governor: Governor):
    connected = Connected(channel)
    await set_limits(connected, Setting(max_num_seqs=4, max_num_batched_tokens=64))
    report = await read(connected, run_at(RunStep.BASELINE))
    assert isinstance(report, Report)
    assert report.standing is not None
    assert report.standing.wanted == governor.next_step(0) == Limits(4, 64)
    assert connected.hosts == ["10.244.0.9", CLONE.ip]


async def test_what_the_engine_refuses_is_a_failed_action(channel: Channel):
    with pytest.raises(apply.ActionsFailed) as failed:
        await set_limits(Connected(channel), Setting(max_num_seqs=17, max_num_batched_tokens=64))
    [failure] = failed.value.failures
    assert isinstance(failure.error, LimitsRefused)


@pytest.mark.parametrize(
    "run",
    [
        run_at(RunStep.BASELINE, "Disabled"),
        *(run_at(step) for step in (RunStep.RAMP, RunStep.CERTIFY)),
        as_production_is(RunStep.RAMP),
    ],
)
async def test_an_engine_is_asked_only_where_the_answer_may_be_needed(channel: Channel, run: TuningRun):
    connected = Connected(channel)
    assert await read(connected, run) is None
    assert connected.hosts == []


@pytest.mark.parametrize("step", [RunStep.CERTIFY, RunStep.BASELINE])
async def test_where_production_is_switched_live_the_choice_is_certified_so_and_the_engine_is_asked(
    channel: Channel, step: RunStep
):
    assert isinstance(await read(Connected(channel), as_production_is(step)), Report)


async def test_an_engine_without_the_plugin_is_told_as_unreachable(channel: Channel):
    channel.close()
    try:
        assert isinstance(await read(Connected(channel), run_at(RunStep.BASELINE)), Unreachable)
    finally:
        channel.close = lambda: None  # type: ignore[method-assign]


@pytest.mark.parametrize(("host", "url"), [("10.0.0.7", "http://10.0.0.7:8719"), ("fd00::7", "http://[fd00::7]:8719")])
async def test_the_channel_is_reached_by_address_alone(host: str, url: str):
    async with connect_live(host, SecretStr(TOKEN)) as live:
        assert str(live._client.base_url) == url


def test_a_name_could_lead_anywhere():
    with pytest.raises(ValueError, match="example"):
        connect_live("example.com", SecretStr(TOKEN))
