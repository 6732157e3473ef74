"""Live tuning on a real server: changes under load, refusals, and an engine without the plugin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.realvllm.environment import RealVllm, prepare
from e2e.realvllm.live_changes import START, change_at_random, tuned_server
from e2e.realvllm.server import LocalServer
from kneekeeper.load.live_limits import LiveLimits, PluginMismatch, PluginMissing

# A start takes half a minute on an idle machine, four times as long on a busy one.
pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

TOKEN = "a-token-of-the-run"
CHANGES = 100  # `make bench-live` makes 400


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
    outcome = change_at_random(server, url, TOKEN, changes=CHANGES, seed=1)
    assert outcome.failures == ()
    assert len(outcome.changes) == CHANGES
    assert max(change.in_force_s for change in outcome.changes) <= outcome.longest_request_s
    assert outcome.above_the_limit == 0
    assert outcome.refused_above_start == outcome.asked_above_start == CHANGES // 10


async def test_another_token_is_let_in_nowhere(tuned: tuple[LocalServer, str]):
    async with LiveLimits(tuned[1], "another") as live:
        with pytest.raises(PluginMismatch, match="401"):
            await live.change(START)


async def test_an_engine_whose_plugins_are_chosen_without_it_says_nothing_there(engine: RealVllm, tmp_path: Path):
    with tuned_server(engine, tmp_path, TOKEN, {"VLLM_PLUGINS": "another"}) as (_, url):
        async with LiveLimits(url, TOKEN) as live:
            with pytest.raises(PluginMissing):
                await live.read()
