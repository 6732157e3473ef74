from dataclasses import replace

import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Fixed
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.domain.candidates import Candidates, Limit
from kneekeeper.domain.most_tokens import ALIKE, STORM, most_tokens
from kneekeeper.domain.twin.law import Law
from kneekeeper.domain.twin.surface import Surface
from kneekeeper.domain.twin.traffic import TwinTraffic

PROMPT, OUTPUT = 200, 100
TRAFFIC = TwinTraffic(Fixed(value=PROMPT), Fixed(value=OUTPUT), None, None)
FLAT = Law(base_s=8e-3, per_sequence_s=1e-3, per_prefill_token_s=2e-5)
"""Its throughput is 80% of its limit at 32 sequences, and grows by little beyond."""
STEEP = Law(base_s=2e-2, per_sequence_s=1e-5, per_prefill_token_s=1e-6)
"""More sequences cost next to nothing."""


def allowed(
    sequences: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64), budgets: tuple[int, ...] = (256, 1024)
) -> Candidates:
    settings = tuple(Setting(max_num_seqs=n, max_num_batched_tokens=m) for n in sequences for m in budgets)
    return Candidates(settings, Limit(max(sequences), BoundBy.BOUND), Limit(max(budgets), BoundBy.BOUND))


def full(traffic: TwinTraffic, law: Law, setting: Setting) -> float:
    return Surface.drawn(traffic, (), [law], 2000).capacity(traffic.limits(setting))


@pytest.mark.parametrize("law", [FLAT, STEEP])
def test_the_chosen_setting_makes_as_much_as_the_best_and_no_smaller_one_does(law: Law):
    found = most_tokens(TRAFFIC, law, allowed(), None)
    rates = {setting: full(TRAFFIC, law, setting) for setting in allowed().settings}
    assert rates[found.setting] >= (1 - ALIKE) * max(rates.values())
    for setting, rate in rates.items():
        if setting.max_num_seqs < found.setting.max_num_seqs:
            assert rate < (1 - ALIKE) * max(rates.values())


def test_where_more_sequences_cost_nothing_the_bound_binds():
    assert most_tokens(TRAFFIC, STEEP, allowed(), None).bound_by is BoundBy.BOUND


def test_of_a_flat_plateau_the_fewest_sequences_are_taken():
    flat = replace(FLAT, base_s=1e-4)
    assert most_tokens(TRAFFIC, flat, allowed(), None).setting.max_num_seqs <= 16


def test_no_place_is_made_for_more_users_than_are_declared():
    assert most_tokens(TRAFFIC, STEEP, allowed(), 8).setting.max_num_seqs == 8


def test_a_setting_that_preempts_is_left_out_for_one_that_does_not():
    # Room for twelve requests at their ends: with 64 sequences most are thrown out and computed again.
    tight = replace(TRAFFIC, kv_cache_tokens=12 * (PROMPT + OUTPUT))
    surface = Surface.drawn(tight, (), [STEEP], 2000)
    found = most_tokens(tight, STEEP, allowed(), None).setting
    stormy = Setting(max_num_seqs=64, max_num_batched_tokens=1024)
    assert surface.full_batch(tight.limits(stormy), 64).preemptions_per_request > STORM
    assert surface.full_batch(tight.limits(found), found.max_num_seqs).preemptions_per_request <= STORM
