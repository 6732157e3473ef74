"""Live tuning on a real server: changes under load, refusals, and an engine without the plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.realvllm.environment import RealVllm, prepare
from e2e.realvllm.live_changes import START, FileLimits, change_at_random, tuned_server
from e2e.realvllm.server import LocalServer
from kneekeeper.livetune.environment import APPROVED, FILE, STARTED, STARTED_OTHERWISE, limits_text
from kneekeeper.livetune.environment import TOKEN as TOKEN_VARIABLE
from kneekeeper.livetune.limits import Limits
from kneekeeper.load.live_limits import LiveLimits, PluginMismatch, PluginMissing

# A start takes half a minute on an idle machine, four times as long on a busy one.
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

TOKEN = "a-token-of-the-run"
CHANGES = 100  # `make bench-live` makes 400
FILE_CHANGES = 30  # each takes a look, a second
APPROVED_LIMITS = Limits(4, 512)


@pytest.fixture(scope="module")
def engine() -> RealVllm:
    return prepare()


@pytest.fixture(scope="module")
def tuned(engine: RealVllm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalServer, str]]:
    # An allow-list of plugins that the user has set is added to, as the clone's builder does.
    allowed = {"VLLM_PLUGINS": "another,kneekeeper_livetune"}
    with tuned_server(engine, tmp_path_factory.mktemp("plugin"), TOKEN, allowed) as server:
        yield server


def test_random_changes_under_load_fail_no_request_and_are_in_force_within_one_request(tuned: tuple[LocalServer, str]):
    server, url = tuned
    outcome = change_at_random(server, lambda: LiveLimits(url, TOKEN), changes=CHANGES, seed=1)
    assert outcome.failures == ()
    assert len(outcome.changes) == CHANGES
    assert max(change.in_force_s for change in outcome.changes) <= outcome.longest_request_s
    assert outcome.above_the_limit == 0
    assert outcome.refused_above_start == outcome.asked_above_start == CHANGES // 10


async def test_another_token_is_let_in_nowhere(tuned: tuple[LocalServer, str]):
    async with LiveLimits(tuned[1], "another") as live:
        with pytest.raises(PluginMismatch, match="401"):
            await live.change(START)


def in_production(path: Path, started: Limits) -> dict[str, str]:
    """The environment of an engine that follows a file."""
    approved = limits_text(APPROVED_LIMITS.max_num_seqs, APPROVED_LIMITS.max_num_batched_tokens)
    meant = limits_text(started.max_num_seqs, started.max_num_batched_tokens)
    return {TOKEN_VARIABLE: "", FILE: str(path), STARTED: meant, APPROVED: approved}


def test_random_changes_of_the_file_under_load_fail_no_request_and_above_the_start_none_is_taken(
    engine: RealVllm, tmp_path: Path
):
    path = tmp_path / "limits"
    with tuned_server(engine, tmp_path / "plugin", "", in_production(path, START)) as (server, url):
        assert asyncio.run(wanted(url)) == APPROVED_LIMITS
        path.write_text("nothing of use")
        outcome = change_at_random(server, lambda: FileLimits(url, path), changes=FILE_CHANGES, seed=2)
        assert outcome.failures == ()
        assert len(outcome.changes) == FILE_CHANGES
        assert max(change.in_force_s for change in outcome.changes) <= outcome.longest_request_s
        assert outcome.above_the_limit == 0
        assert outcome.refused_above_start == outcome.asked_above_start > 0
        assert outcome.report.standing is not None
        assert outcome.report.standing.fall_backs == 0
        path.unlink()
        assert asyncio.run(wanted(url)) == START
        print(
            f"{len(outcome.changes)} changes by a file, {outcome.requests} requests, {len(outcome.failures)} failed, "
            f"in force within {max(change.in_force_s for change in outcome.changes):.2f} s of being read"
        )


async def wanted(url: str) -> Limits:
    async with LiveLimits(url, "") as live:
        standing = (await live.read()).standing
    assert standing is not None
    return standing.wanted


async def test_an_engine_that_was_started_with_other_values_than_meant_keeps_them(engine: RealVllm, tmp_path: Path):
    meant = Limits(START.max_num_seqs * 2, START.max_num_batched_tokens)
    with tuned_server(engine, tmp_path / "plugin", "", in_production(tmp_path / "limits", meant)) as (_, url):
        async with LiveLimits(url, "") as live:
            report = await live.read()
    assert report.unsupported is not None
    assert report.unsupported.reason == STARTED_OTHERWISE


async def test_an_engine_whose_plugins_are_chosen_without_it_says_nothing_there(engine: RealVllm, tmp_path: Path):
    with tuned_server(engine, tmp_path, TOKEN, {"VLLM_PLUGINS": "another"}) as (_, url):
        async with LiveLimits(url, TOKEN) as live:
            with pytest.raises(PluginMissing):
                await live.read()
