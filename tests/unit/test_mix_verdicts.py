from __future__ import annotations

import numpy as np
import pytest

from kneekeeper.api.offered_load import Fixed
from kneekeeper.api.stage import Limits, Slo, StageClass, StageSpec
from kneekeeper.api.tuning_run import Verdict
from kneekeeper.domain.mix_targets import loosest_slo
from kneekeeper.domain.mix_verdicts import MixTest, certify_requests, class_floors, summarise_classes, verdict_of_mix
from kneekeeper.domain.samples import StageData
from tests.unit.test_workload import spec

CHAT = StageClass(
    name="chat", weight=80, prompt_tokens=Fixed(value=50), output_tokens=Fixed(value=10), slo=Slo(ttft_s=0.3)
)
DOCUMENTS = StageClass(
    name="documents",
    weight=20,
    prompt_tokens=Fixed(value=5000),
    output_tokens=Fixed(value=50),
    slo=Slo(ttft_s=5.0, tpot_s=0.05),
)
LIMITS = Limits(min_requests=1, max_requests=5000, max_duration_s=60)
MIX: StageSpec = spec(classes=(CHAT, DOCUMENTS), limits=LIMITS, slo=Slo(ttft_s=0.01))


def stage(chat_ttft_s: float, document_ttft_s: float, late_chats: int = 0) -> StageData:
    """Every fifth request is a document; some chats, evenly spread, may be late."""
    count = 5000
    classes = np.where(np.arange(count) % 5 == 4, 1, 0)
    ttft_s = np.where(classes == 1, document_ttft_s, chat_ttft_s)
    if late_chats:
        ttft_s[np.flatnonzero(classes == 0)[:: 4000 // late_chats]] = 1.0
    intended_s = np.arange(count, dtype=np.float64)
    ones = np.ones(count, dtype=np.int64)
    return StageData(
        warmup_s=0.0,
        intended_s=intended_s,
        first_s=intended_s + ttft_s,
        last_s=intended_s + ttft_s,
        prompt_tokens=ones,
        output_tokens=ones,
        first_chunk_tokens=ones,
        ok=np.ones(count, dtype=np.bool_),
        request_class=classes,
    )


def test_each_class_is_held_to_its_own_slo_and_not_to_that_of_the_profile():
    joint, results = verdict_of_mix(stage(0.2, 4.0), MIX, 650)
    assert joint.verdict is Verdict.PASS
    assert [result.verdict for result in results] == [Verdict.PASS, Verdict.PASS]
    assert [result.requests for result in results] == [4000, 1000]
    assert (joint.requests, joint.misses) == (5000, 0)


def test_a_mix_fails_when_one_class_does_and_says_which():
    joint, results = verdict_of_mix(stage(0.2, 6.0), MIX, 650)
    assert joint.verdict is Verdict.FAIL
    assert [result.verdict for result in results] == [Verdict.PASS, Verdict.FAIL]
    assert joint.message.startswith("Class documents: ")


def test_a_mix_with_an_undecided_class_is_inconclusive():
    joint, results = verdict_of_mix(stage(0.2, 4.0, late_chats=40), MIX, 650)
    assert results[0].verdict is Verdict.INCONCLUSIVE
    assert joint.verdict is Verdict.INCONCLUSIVE
    assert joint.requests_to_decide > 0


@pytest.mark.parametrize(("document_ttft_s", "verdict"), [(4.0, Verdict.PASS), (6.0, Verdict.FAIL)])
def test_the_running_test_agrees_with_the_verdict_at_the_end(document_ttft_s, verdict):
    data = stage(0.2, document_ttft_s)
    test = MixTest(MIX, 650)
    misses = data.misses_of_mix(MIX.slos)
    for start in range(0, len(data), 100):
        assert test.requests == start
        test.update(misses[start : start + 100], data.request_class[start : start + 100])
        if test.verdict is not None:
            break
    assert test.verdict is verdict


def test_without_classes_the_one_slo_is_judged():
    one = spec(slo=Slo(ttft_s=1.0), limits=LIMITS)
    joint, results = verdict_of_mix(stage(0.2, 4.0), one, 650)
    assert joint.verdict is Verdict.FAIL
    assert results == ()
    assert class_floors(one, 650) == (650,)


def test_the_floor_of_the_whole_is_shared_out_by_weight():
    assert class_floors(MIX, 650) == (520, 130)


@pytest.mark.parametrize(
    ("weights", "requests"), [([], 3000), ([50, 50], 3000), ([80, 20], 5000), ([99, 1], 20_000), ([97, 3], 20_000)]
)
def test_a_certification_is_long_enough_for_its_smallest_class(weights, requests):
    assert certify_requests(weights, 3000) == requests


def test_a_summary_tells_each_class_in_numbers():
    data = stage(0.2, 4.0, late_chats=4)
    chat, documents = summarise_classes(data, MIX, ())
    assert (chat.name, chat.requests, chat.misses, chat.verdict) == ("chat", 4000, 4, None)
    assert documents.p99_ttft == pytest.approx(4.0)


def test_a_ramp_goes_on_until_no_class_forgives_it():
    assert loosest_slo(Slo(ttft_s=0.01), MIX.classes) == Slo(tpot_s=0.05, ttft_s=5.0)
    assert loosest_slo(Slo(ttft_s=0.01), ()) == Slo(ttft_s=0.01)
