from dataclasses import replace

import numpy as np
import pytest

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import LogNormal
from kneekeeper.api.tuning_run import StageKind, StageSummary, Verdict
from kneekeeper.domain.calibration import MOST_STRETCH, calibrate
from kneekeeper.domain.twin import Law
from kneekeeper.domain.twin.fit import LawFit
from kneekeeper.domain.twin.stages import FOR_QUANTILES, twin_stage
from kneekeeper.domain.twin.surface import Tails
from kneekeeper.domain.twin.traffic import TwinTraffic
from tests.unit.stage_builders import summary

LAW = Law(base_s=8e-3, per_sequence_s=1e-4, per_prefill_token_s=5e-5)
TRAFFIC = TwinTraffic(LogNormal(mean=200, sigma=0.8, maximum=2000), LogNormal(mean=100, sigma=0.5, maximum=500))
UNEXPLAINED = LawFit(LAW, (), condition=1.0, told={}, misfit=1.5)
EXPLAINED = replace(UNEXPLAINED, misfit=0.9)
SETTING = Setting(max_num_seqs=64, max_num_batched_tokens=4096)


def open_loop(times: float = 1.0, kind: StageKind = StageKind.OPEN, requests: int = 3000) -> StageSummary:
    """A stage whose tails are `times` as long as the twin has them."""
    stage = summary("open-1", kind, setting=SETTING, users=None, offered_requests_per_second=5.0, requests=requests)
    twin = twin_stage(stage, TRAFFIC, FOR_QUANTILES)
    assert twin is not None
    shown = {name: float(np.exp(value)) for name, value in zip(twin.statistics, twin.predict(LAW), strict=True)}
    for name in ("ttft", "tpot"):
        median = shown[f"p50_{name}"]
        shown[f"p99_{name}"] = median + times * (shown[f"p99_{name}"] - median)
    return stage.with_changes(**shown)


def test_stages_as_predicted_stretch_nothing():
    assert calibrate([open_loop()], TRAFFIC, UNEXPLAINED) == Tails()


def test_stages_with_shorter_tails_than_predicted_shorten_nothing():
    assert calibrate([open_loop(0.5)], TRAFFIC, UNEXPLAINED) == Tails()


def test_a_machine_that_is_slower_as_a_whole_stretches_nothing():
    stage = open_loop()
    slower = {name: 1.3 * getattr(stage, name) for name in ("p50_ttft", "p99_ttft", "p50_tpot", "p99_tpot")}
    assert calibrate([stage.with_changes(**slower)], TRAFFIC, UNEXPLAINED) == Tails()


@pytest.mark.parametrize("kind", [StageKind.OPEN, StageKind.CERTIFY, StageKind.BASELINE])
def test_tails_that_an_open_loop_had_longer_than_predicted_are_stretched(kind):
    tails = calibrate([open_loop(1.6, kind)], TRAFFIC, UNEXPLAINED)
    assert 1.2 < tails.tpot <= 1.61
    assert 1.2 < tails.ttft <= 1.61


def test_a_few_requests_stretch_less_than_many():
    few, many = (calibrate([open_loop(1.6, requests=n)], TRAFFIC, UNEXPLAINED) for n in (40, 3000))
    assert few.ttft < many.ttft


def test_no_stage_stretches_beyond_what_is_believed():
    assert calibrate([open_loop(30)], TRAFFIC, UNEXPLAINED).tpot == MOST_STRETCH


def test_where_the_law_explains_all_stages_only_certifications_stretch():
    assert calibrate([open_loop(1.6)], TRAFFIC, EXPLAINED) == Tails()
    assert calibrate([open_loop(1.6, StageKind.CERTIFY)], TRAFFIC, EXPLAINED).tpot > 1.2


def test_void_and_saturated_stages_say_nothing():
    void = open_loop(3).with_changes(verdict=Verdict.VOID)
    assert calibrate([void, open_loop(3).with_changes(saturated=True)], TRAFFIC, UNEXPLAINED) == Tails()
