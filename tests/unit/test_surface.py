"""Rates that the surface finds are the highest that hold; and what binds is what helps when it is taken away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import LogNormal
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.stage import Slo
from kneekeeper.domain.binding import bound_by
from kneekeeper.domain.candidates import Candidates, Limit
from kneekeeper.domain.certify import OFFERED_SHARE, SAFETY
from kneekeeper.domain.twin import Law
from kneekeeper.domain.twin import surface as surface_module
from kneekeeper.domain.twin.surface import BUSIEST, RESOLUTION, Missed, Surface, Tails
from kneekeeper.domain.twin.traffic import TwinTraffic

LAW = Law(base_s=8e-3, per_sequence_s=2e-4, per_prefill_token_s=4e-5)
TRAFFIC = TwinTraffic(LogNormal(mean=300, sigma=0.8, maximum=3000), LogNormal(mean=80, sigma=0.5, maximum=400))
SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=1024)


def surface(slo: Slo, runs: int = 1, traffic: TwinTraffic = TRAFFIC) -> Surface:
    return Surface.drawn(traffic, [slo], [LAW] * runs, 800)


@pytest.mark.parametrize("slo", [Slo(ttft_s=0.3), Slo(tpot_s=0.025), Slo(e2e_s=4.0), Slo(ttft_s=0.3, tpot_s=0.03)])
def test_the_highest_rate_holds_and_a_little_more_does_not(slo: Slo):
    runs = surface(slo)
    limits = TRAFFIC.limits(SETTING)
    rate = runs.highest_rate(limits)
    assert 0 < rate < BUSIEST * runs.capacity(limits)
    assert runs.holds(limits, rate)
    assert not runs.holds(limits, (1 + 2 * RESOLUTION) * rate)


def test_a_guess_changes_nothing_but_the_steps():
    runs, limits = surface(Slo(ttft_s=0.3)), TRAFFIC.limits(SETTING)
    rate = runs.highest_rate(limits)
    for near in (0.5 * rate, 1.2 * rate):
        assert runs.highest_rate(limits, near=near) == pytest.approx(rate, rel=2 * RESOLUTION)
    assert runs.highest_rate(limits, least=1.1 * rate) == 0


def test_an_impossible_target_holds_at_no_rate():
    assert surface(Slo(ttft_s=0.001)).highest_rate(TRAFFIC.limits(SETTING)) == 0


def test_more_runs_promise_less():
    limits = TRAFFIC.limits(SETTING)
    laws = [LAW, *(replace(LAW, base_s=LAW.base_s * share) for share in (0.9, 1.1, 1.2))]
    unsure = Surface.drawn(TRAFFIC, [Slo(tpot_s=0.025)], laws, 800)
    assert unsure.highest_rate(limits) < unsure.first().highest_rate(limits)


def test_misses_of_all_runs_count_together():
    limits, runs = TRAFFIC.limits(SETTING), surface(Slo(ttft_s=0.3), runs=8)
    rates = [
        replace(runs, requests=(requests,), laws=(LAW,)).highest_rate(limits)  # each draw by itself
        for requests in runs.requests
    ]
    assert min(rates) < runs.highest_rate(limits) < max(rates)


def test_a_rate_at_which_misses_do_not_fall_with_the_load_does_not_hold(monkeypatch: pytest.MonkeyPatch):
    runs, limits = surface(Slo(ttft_s=0.3)), TRAFFIC.limits(SETTING)
    rate = runs.highest_rate(limits)
    monkeypatch.setattr(surface_module, "OFFERED_SHARE", 1.0)
    assert not runs.holds(limits, rate)
    assert 0 < runs.highest_rate(limits) < rate


def test_a_rate_at_which_the_promise_is_missed_more_often_does_not_hold(monkeypatch: pytest.MonkeyPatch):
    runs, limits = surface(Slo(ttft_s=0.3)), TRAFFIC.limits(SETTING)
    rates: list[float] = []

    def within(_: Surface, __: object, rate: float, share: float, planned: int | None = None) -> bool:
        rates.append(rate)
        return not 7.0 < rate < 8.0

    monkeypatch.setattr(Surface, "_within", within)
    assert not runs.holds(limits, 10.0)
    assert rates[-1] == pytest.approx(10 * OFFERED_SHARE / SAFETY)
    assert runs.holds(limits, 12.0)


def test_a_setting_that_holds_again_close_to_saturation_is_found_there(monkeypatch: pytest.MonkeyPatch):
    runs, limits = surface(Slo(ttft_s=0.3)), TRAFFIC.limits(SETTING)
    top = BUSIEST * runs.capacity(limits)
    monkeypatch.setattr(Surface, "holds", lambda _, __, rate: rate < 0.4 * top or 0.96 * top < rate < 0.98 * top)
    assert 0.96 * top < runs.highest_rate(limits) < 0.98 * top
    assert 0.96 * top < runs.highest_rate(limits, near=0.5 * top) < 0.98 * top


def test_a_rate_whose_queue_a_certification_would_doubt_does_not_hold():
    limits, runs = TRAFFIC.limits(SETTING), surface(Slo(ttft_s=60.0), runs=4, traffic=replace(TRAFFIC, burstiness=0.2))
    anything, long_stage, short_stage = (
        runs.certified_by(planned).highest_rate(limits) for planned in (None, 20_000, 100)
    )
    assert 0 < short_stage < long_stage <= anything
    below_saturation = surface(Slo(tpot_s=0.02))
    assert below_saturation.certified_by(3000).highest_rate(limits) == below_saturation.highest_rate(limits)


def test_longer_tails_lower_the_rate_and_raise_what_is_predicted():
    plain, limits = surface(Slo(tpot_s=0.025)), TRAFFIC.limits(SETTING)
    longer = plain.with_tails(Tails(tpot=1.5))
    rate = longer.highest_rate(limits)
    assert 0 < rate < plain.highest_rate(limits)
    assert longer.predicted(limits, rate).p99_tpot_s > 1.05 * plain.predicted(limits, rate).p99_tpot_s
    assert longer.predicted(limits, rate).p99_ttft_s == plain.predicted(limits, rate).p99_ttft_s
    assert longer.predicted(limits, rate).p99_tpot_s == pytest.approx(0.025, rel=0.05)


def test_the_capacity_is_what_a_full_batch_carries():
    few, many = (surface(Slo()).capacity(TRAFFIC.limits(replace_seqs(n))) for n in (8, 64))
    # 8 requests of 80 tokens, each step 8 ms and a little: about 10 requests a second.
    assert few == pytest.approx(8 / (80 * (8e-3 + 8 * 2e-4 + 8 * 300 / 80 * 4e-5)), rel=0.1)
    assert many > 2 * few


def replace_seqs(max_num_seqs: int) -> Setting:
    return Setting(max_num_seqs=max_num_seqs, max_num_batched_tokens=1024)


def test_what_is_missed_is_named():
    limits = TRAFFIC.limits(SETTING)
    assert surface(Slo(ttft_s=0.001, tpot_s=9.0)).missed(limits, 1.0) == {Missed.TTFT}
    assert surface(Slo(ttft_s=9.0, tpot_s=0.001)).missed(limits, 1.0) == {Missed.TPOT}


def allowed(*sequences: int) -> Candidates:
    settings = [Setting(max_num_seqs=n, max_num_batched_tokens=m) for n in sequences for m in (512, 1024, 2048)]
    return Candidates(tuple(settings), Limit(max(sequences), BoundBy.BOUND), Limit(2048, BoundBy.BOUND))


def binding(slo: Slo, setting: Setting, candidates: Candidates, traffic: TwinTraffic = TRAFFIC) -> BoundBy:
    runs = surface(slo, traffic=traffic)
    return bound_by(runs, setting, runs.highest_rate(traffic.limits(setting)), candidates)


def test_a_tight_tpot_binds():
    assert binding(Slo(ttft_s=2.0, tpot_s=0.02), SETTING, allowed(64, 128)) == BoundBy.TPOT


def test_a_bound_on_the_sequences_binds():
    assert binding(Slo(ttft_s=0.5, tpot_s=0.1), replace_seqs(8), allowed(4, 8)) == BoundBy.BOUND


def test_a_small_kv_cache_binds():
    small = replace(TRAFFIC, kv_cache_tokens=6000)
    assert binding(Slo(ttft_s=0.5, tpot_s=0.1), SETTING, allowed(64, 128), small) == BoundBy.KV_CACHE


def test_a_tight_ttft_binds():
    assert binding(Slo(ttft_s=0.15, tpot_s=0.2), replace_seqs(128), allowed(64, 128, 256)) == BoundBy.TTFT


def test_throughput_that_nothing_raises_is_the_knee():
    assert binding(Slo(ttft_s=20.0, tpot_s=1.0), replace_seqs(256), allowed(256, 512)) == BoundBy.KNEE
