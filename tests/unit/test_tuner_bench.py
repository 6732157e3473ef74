"""The tuner's benchmark on two scenarios, coarsely: that it runs to its end and measures what it says."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.tuner.baselines import search
from benchmarks.tuner.engines import BLOCK_TOKENS, HYBRID_A100, HYBRID_A100_STRICT, LLAMA70_H100
from benchmarks.tuner.evaluate import Row, evaluate
from benchmarks.tuner.product import tune
from benchmarks.tuner.report import summarise, tables
from benchmarks.tuner.scenarios import SCENARIOS, RequestClass, Scenario, Tokens
from benchmarks.tuner.truth import CLOSE, Truth, with_ample_kv
from kneekeeper.api.model import Setting

SHORT = (RequestClass(Tokens(150, 600, 1000), Tokens(20, 60, 100), 2.0, 0.08),)
QUICK = Scenario("quick", LLAMA70_H100, SHORT, (4, 16, 64), (256, 1024))
REQUESTS = 1_000


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("truth")


@pytest.fixture(scope="module")
def row(kept: Path) -> Row:
    return evaluate(QUICK, kept, REQUESTS)


def test_the_best_point_of_the_grid_holds_what_no_other_point_beats(kept: Path):
    truth = Truth(QUICK, kept, REQUESTS)
    found = truth.of_grid()
    every = {setting: truth.capacity(setting) for setting in QUICK.grid}
    assert found.capacity >= max(every.values()) / 1.03
    assert found.best in found.close
    assert all(every[setting] >= CLOSE * found.capacity / 1.02 for setting in found.close)


def test_truths_are_kept_and_belong_to_their_scenario(kept: Path):
    truth = Truth(QUICK, kept, REQUESTS)
    known = truth.capacity(QUICK.grid[0])
    assert Truth(QUICK, kept, REQUESTS).capacity(QUICK.grid[0], near=1e9) == known
    slower = replace(QUICK, classes=(replace(SHORT[0], tpot_s=0.045),))
    assert Truth(slower, kept, REQUESTS).capacity(QUICK.grid[-1]) < truth.capacity(QUICK.grid[-1])
    assert Truth(with_ample_kv(QUICK), kept, REQUESTS).capacity(QUICK.grid[-1]) >= truth.capacity(QUICK.grid[-1])


def test_the_product_ends_with_a_certified_setting_and_its_bill(row: Row):
    run = row.product
    assert run.setting is not None
    assert run.engine_starts >= 2
    assert run.engine_minutes > 2 * LLAMA70_H100.start_s / 60
    assert 0 < run.promised_share < 1
    assert not run.broken


def test_searches_pay_for_each_start(row: Row):
    grid = row.searches["full grid"]
    assert grid.engine_starts == len(QUICK.grid)
    assert grid.engine_minutes > len(QUICK.grid) * LLAMA70_H100.start_s / 60
    assert row.searches["vLLM defaults"].engine_starts == 0
    assert all(0 <= each.share_as_early <= 1.1 for each in row.searches.values())


def test_the_summary_and_the_tables_have_all_keys(row: Row):
    summary = asdict(summarise([row]))
    keys = {"scenarios", "within_5_percent", "broken_slo", "engine_starts_22nd", "max_engine_starts"}
    assert keys | {"engine_minutes_22nd", "promised_share_22nd", "baselines"} <= set(json.loads(json.dumps(summary)))
    assert "quick" in tables([row])


def test_a_strict_engine_refuses_more_sequences_than_it_has_states_for():
    more, fewer = (Setting(max_num_seqs=n, max_num_batched_tokens=512) for n in (97, 96))
    assert HYBRID_A100.starts(more)
    assert not HYBRID_A100_STRICT.starts(more)
    assert HYBRID_A100_STRICT.starts(fewer)
    assert HYBRID_A100_STRICT.kv_tokens(fewer) % BLOCK_TOKENS == 0


def test_an_engine_that_refuses_costs_the_product_one_start_more():
    strict = replace(
        LLAMA70_H100,
        most_sequences=20,
        hard_limit=HYBRID_A100_STRICT.hard_limit,
        default_setting=Setting(max_num_seqs=16, max_num_batched_tokens=512),
    )
    run = tune(replace(QUICK, engine=strict), 1)
    assert run.setting is not None
    assert run.setting.max_num_seqs <= 20
    assert run.engine_starts == 3


def test_the_scenarios_are_as_many_as_asked_for_and_their_grids_as_wide():
    assert len(SCENARIOS) >= 24
    for scenario in SCENARIOS:
        assert len(scenario.sequences) >= 12
        assert len(scenario.budgets) >= 8
        assert scenario.sequences[-1] == 32 * scenario.sequences[0]
        assert scenario.budgets[-1] == 32 * scenario.budgets[0]


def test_defaults_are_what_a_search_starts_from():
    assert search("vLLM defaults", QUICK, 1).chosen == LLAMA70_H100.default_setting
