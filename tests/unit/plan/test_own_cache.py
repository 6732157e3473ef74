"""The rate that is offered is that of the certified engine's own KV cache; the ceiling's engine has a smaller one."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from kneekeeper.api.offered_load import Open
from kneekeeper.api.tuning_run import Choice, RunStep
from kneekeeper.domain import choose
from kneekeeper.domain.certify import OFFERED_SHARE
from kneekeeper.domain.observation import EngineMetrics
from kneekeeper.domain.plan import own_cache
from tests.unit.plan.world import World

OF_THE_CEILING = 3000


class CachingWorld(World):
    """Its first engine holds few requests; the next ones hold `later` tokens."""

    later = OF_THE_CEILING

    def _clone_metrics(self) -> EngineMetrics:
        tokens = OF_THE_CEILING if max(self.clones) == 1 else self.later
        return replace(super()._clone_metrics(), kv_cache_tokens=tokens)


@pytest.fixture(autouse=True)
def _small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "REQUESTS", 500)
    monkeypatch.setattr(choose, "RUNS", 4)


@functools.cache
def choice_with(later: int) -> Choice:
    """The choice of a run once a load is offered to its engine."""
    world = CachingWorld()
    world.later = later
    world.run_until_step(RunStep.CERTIFY)
    world.run_until(lambda world: any(spec.id.startswith("certify") for spec in world.ordered))
    offered = next(spec.arrivals for spec in world.ordered if spec.id.startswith("certify"))
    choice = world.last_run.status.choices[-1]
    assert isinstance(offered, Open)
    assert offered.rate == pytest.approx(OFFERED_SHARE * choice.sustainable_requests_per_second)
    return choice


def test_a_larger_cache_than_the_ceilings_raises_the_rate_of_the_same_setting():
    same, larger = choice_with(OF_THE_CEILING), choice_with(2 * OF_THE_CEILING)
    assert larger.setting == same.setting
    assert larger.sustainable_requests_per_second > 1.1 * same.sustainable_requests_per_second
    assert (same.kv_cache_tokens, larger.kv_cache_tokens) == (OF_THE_CEILING, 2 * OF_THE_CEILING)


def test_more_cache_never_lowers_a_rate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(own_cache, "sustainable_with", lambda *_: 0.1)
    same, larger = (choice_with.__wrapped__(tokens) for tokens in (OF_THE_CEILING, 2 * OF_THE_CEILING))
    assert larger.sustainable_requests_per_second == same.sustainable_requests_per_second
    assert choice_with.__wrapped__(OF_THE_CEILING // 2).sustainable_requests_per_second == 0.1


def test_a_cache_of_about_the_same_size_changes_no_rate():
    same, about = choice_with(OF_THE_CEILING), choice_with(OF_THE_CEILING + 16)
    assert about.sustainable_requests_per_second == same.sustainable_requests_per_second
