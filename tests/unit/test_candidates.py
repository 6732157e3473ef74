import itertools
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.run_plan import SettingBounds
from kneekeeper.api.tuning_run import StageKind
from kneekeeper.domain.candidates import SEQUENCE_STEP, Candidates, candidates
from kneekeeper.domain.engines import valid_sequence_grid, valid_token_grid
from tests.unit.stage_builders import summary

CEILING = Setting(max_num_seqs=256, max_num_batched_tokens=8192)


def found(highest_users: int = 128, **changes: Any) -> Candidates:
    ramp = [summary(f"ramp-{n}", users=n, prompt_tokens_mean=200) for n in (1, highest_users)]
    given: dict[str, Any] = {
        "stages": [*ramp, summary("prefill-800", StageKind.PREFILL, users=1, prompt_tokens_mean=800)],
        "bounds": SettingBounds(lowest=Setting(max_num_seqs=1, max_num_batched_tokens=64), highest=CEILING),
        "ceiling": CEILING,
        "kv_cache_tokens": None,
        "sequence_grid": valid_sequence_grid(256),
        "token_grid": valid_token_grid(8192),
        "longest_prompt_tokens": 900,
    }
    return candidates(**(given | changes))


def test_sequences_are_on_the_grid_of_graphs_and_neighbours_differ():
    sequences = sorted({setting.max_num_seqs for setting in found().settings})
    assert set(sequences) <= set(valid_sequence_grid(256))
    assert all(b >= SEQUENCE_STEP * a for a, b in itertools.pairwise(sequences))
    assert sequences[-1] == 128


def test_nothing_beyond_what_was_tried():
    assert found(32).sequences.value == 32
    assert found(32).sequences.bound_by == BoundBy.BOUND


def test_the_kv_cache_limits_the_sequences_and_is_named():
    limit = found(10, kv_cache_tokens=3000).sequences  # 300 tokens a request, and some are far shorter
    assert (limit.value, limit.bound_by) == (40, BoundBy.KV_CACHE)


def test_a_ramp_that_did_not_fill_the_kv_cache_covers_what_it_tried():
    limit = found(4, kv_cache_tokens=3000).sequences
    assert (limit.value, limit.bound_by) == (4, BoundBy.BOUND)


def test_no_budget_is_larger_than_a_prefill_that_was_seen():
    assert max(s.max_num_batched_tokens for s in found(2).settings) == 768  # of 900
    assert max(s.max_num_batched_tokens for s in found(128).settings) == 8192  # 128 prompts of 200 at once


def test_no_budget_is_smaller_than_the_sequences():
    assert all(s.max_num_batched_tokens >= s.max_num_seqs for s in found().settings)


def test_bounds_above_all_evidence_leave_their_lower_end():
    lowest = Setting(max_num_seqs=64, max_num_batched_tokens=6144)
    only = found(16, bounds=SettingBounds(lowest=lowest, highest=CEILING)).settings
    assert only == (lowest,)


def test_bounds_above_the_ceiling_leave_nothing():
    lowest = Setting(max_num_seqs=512, max_num_batched_tokens=8192)
    assert found(bounds=SettingBounds(lowest=lowest, highest=lowest)).settings == ()


def test_a_knee_that_is_a_hard_cap_limits_the_sequences_and_is_named():
    capped = found(most_sequences=40)
    assert max(setting.max_num_seqs for setting in capped.settings) == 40
    assert (capped.sequences.value, capped.sequences.bound_by) == (40, BoundBy.KNEE)
    assert found(most_sequences=500) == found()
