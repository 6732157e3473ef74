"""The simulated engine is tuned live as a real one: by the delivered plugin, between steps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kneekeeper.livetune import environment
from kneekeeper.livetune.deliver import PACKAGE, deliver
from kneekeeper.livetune.limits import ABOVE_START, TOKENS_BELOW_LEAST, Envelope, Limits
from kneekeeper.livetune.limits_file import LOOK_EVERY_S
from kneekeeper.load.live_limits import LimitsRefused, LiveLimits, PluginMismatch, PluginMissing
from tests.contract.engine_process import FAST, Engine, free_port, running_engine

TOKEN = "a-token-of-the-run"
START = Limits(8, 256)
LIMITS = ("--max-num-seqs", "8", "--max-num-batched-tokens", "256")
FLAGS = ("serve", "tiny", "--max-model-len", "200", "--no-enable-prefix-caching", *LIMITS)


@pytest.fixture
def delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The channel's port of engines that are started from here."""
    deliver(tmp_path)
    port = free_port()
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setenv(environment.TOKEN, TOKEN)
    monkeypatch.setenv(environment.HOST, "127.0.0.1")
    monkeypatch.setenv(environment.PORT, str(port))
    return port


@pytest.fixture
def engine(delivered: int) -> Iterator[Engine]:
    with running_engine(FAST, *FLAGS) as engine:
        yield engine


def live(port: int) -> LiveLimits:
    return LiveLimits(f"http://127.0.0.1:{port}", TOKEN)


async def test_under_lower_limits_prompts_are_cut_to_the_budget_and_requests_follow_each_other(
    engine: Engine, delivered: int
):
    async with live(delivered) as limits:
        assert (await limits.read()).envelope == Envelope(START, START)
        await limits.change(Limits(1, 16))
        await asyncio.gather(*(asyncio.to_thread(_complete, engine) for _ in range(6)))
        standing = (await limits.read()).standing
    assert standing is not None
    assert standing.in_force == Limits(1, 16)
    # 100 tokens of prompt take 7 steps, of which the last brings a token; 19 more follow. Together the six would
    # take less than a quarter of this.
    assert standing.steps == 6 * (7 + 19)


def _complete(engine: Engine) -> None:
    answer = engine.post("/v1/completions", prompt=[1] * 100, max_tokens=20, ignore_eos=True)
    assert answer.json()["usage"]["completion_tokens"] == 20


async def test_a_value_above_the_start_is_refused(engine: Engine, delivered: int):
    async with live(delivered) as limits:
        with pytest.raises(LimitsRefused) as refused:
            await limits.change(Limits(9, 256))
    assert refused.value.refusal.reason == ABOVE_START


async def test_without_chunked_prefill_a_prompt_must_fit_into_a_step(delivered: int):
    with running_engine(FAST, *FLAGS, "--no-enable-chunked-prefill"):
        async with live(delivered) as limits:
            with pytest.raises(LimitsRefused) as refused:
                await limits.change(Limits(8, 199))
            await limits.change(Limits(8, 200))
    assert refused.value.refusal.reason == TOKENS_BELOW_LEAST


@pytest.mark.parametrize(
    ("variable", "value"), [("VLLM_PLUGINS", "another"), ("VLLM_PLUGINS", ""), (environment.TOKEN, "")]
)
async def test_an_engine_that_is_not_to_load_it_has_no_channel(
    delivered: int, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
):
    monkeypatch.setenv(variable, value)
    with running_engine(FAST, *FLAGS):
        async with live(delivered) as limits:
            with pytest.raises(PluginMissing):
                await limits.read()


async def test_it_is_loaded_where_an_allow_list_names_it(delivered: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VLLM_PLUGINS", f"another,{PACKAGE}")
    with running_engine(FAST, *FLAGS):
        async with live(delivered) as limits:
            assert (await limits.read()).unsupported is None


def follow(monkeypatch: pytest.MonkeyPatch, path: Path, started: str) -> None:
    monkeypatch.delenv(environment.TOKEN)
    monkeypatch.setenv(environment.FILE, str(path))
    monkeypatch.setenv(environment.STARTED, started)
    monkeypatch.setenv(environment.APPROVED, "2,32")


async def test_in_production_it_follows_a_file_and_takes_nothing_from_the_channel(
    delivered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "limits"
    follow(monkeypatch, file, "8,256")
    with running_engine(FAST, *FLAGS) as engine:
        async with live(delivered) as limits:
            assert await wanted(limits) == Limits(2, 32)
            for text, expected in (
                (b'{"max_num_seqs": 1, "max_num_batched_tokens": 16}', Limits(1, 16)),
                (b'{"max_num_seqs": 9, "max_num_batched_tokens": 256}', Limits(1, 16)),
                (b"gone wrong", Limits(1, 16)),
                (b'{"max_num_seqs": 8, "max_num_batched_tokens": 256}', START),
            ):
                file.write_bytes(text)
                await asyncio.sleep(2 * LOOK_EVERY_S)
                assert await wanted(limits) == expected
            with pytest.raises(PluginMismatch, match="405"):
                await limits.change(Limits(4, 64))
            await asyncio.to_thread(_complete, engine)
            standing = (await limits.read()).standing
            assert standing is not None
            assert (standing.in_force, standing.fall_backs) == (START, 0)


async def wanted(limits: LiveLimits) -> Limits:
    standing = (await limits.read()).standing
    assert standing is not None
    return standing.wanted


async def test_an_engine_that_somebody_started_with_other_values_keeps_those(
    delivered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    follow(monkeypatch, tmp_path / "limits", "16,256")
    with running_engine(FAST, *FLAGS) as engine:
        async with live(delivered) as limits:
            report = await limits.read()
        assert report.unsupported is not None
        assert report.unsupported.reason == environment.STARTED_OTHERWISE
        await asyncio.to_thread(_complete, engine)
