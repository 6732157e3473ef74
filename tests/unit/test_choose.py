from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.api.model import Setting
from kneekeeper.api.offered_load import Fixed
from kneekeeper.api.profile_status import BoundBy
from kneekeeper.api.run_plan import SettingBounds
from kneekeeper.api.stage import NOT_STEADY, Slo, StageClass
from kneekeeper.api.tuning_run import Certification, RunOutcome, StageKind, StageSummary, Verdict
from kneekeeper.domain import choose as choose_module
from kneekeeper.domain.certify import OFFERED_SHARE
from kneekeeper.domain.choose import ChooseInput, Chosen, NoChoice, choose, sustainable_with
from kneekeeper.domain.engine_law import fit_engine
from kneekeeper.domain.engines import valid_sequence_grid, valid_token_grid
from kneekeeper.domain.knee import KneeCap
from kneekeeper.domain.ladder import LadderSettings
from kneekeeper.domain.still_believed import AFTER_DOUBT, AFTER_FAIL, AFTER_INCONCLUSIVE
from kneekeeper.domain.twin.simulate import TwinLimits
from kneekeeper.domain.twin.surface import Surface
from kneekeeper.domain.twin.traffic import TwinTraffic
from tests.unit.stage_builders import summary

CEILING = Setting(max_num_seqs=128, max_num_batched_tokens=8192)
A, B, D = 8e-3, 1e-4, 4e-5
PROMPT, OUTPUT = 400, 100
INTERACTIVE = Slo(ttft_s=0.5, tpot_s=0.05)


def stages_of_the_law(highest: int = 128, per_prefill_token_s: float = D) -> list[StageSummary]:
    """A ladder on an engine of T = A + B n + d p, without noise."""
    d = per_prefill_token_s
    found = []
    for users in (2**k for k in range(highest.bit_length())):
        step = A + (B + d * PROMPT / OUTPUT) * users
        rate = users / (OUTPUT * step)
        found.append(
            summary(
                f"ramp-{users}",
                setting=CEILING,
                users=users,
                requests=max(30, 5 * users),
                prompt_tokens_mean=PROMPT,
                output_tokens_mean=OUTPUT,
                requests_per_second=rate,
                output_tokens_per_second=rate * OUTPUT,
                p50_tpot=step,
                p99_tpot=1.3 * step,
                p50_ttft=A + d * PROMPT,
                p99_ttft=2 * (A + d * PROMPT),
            )
        )
    for tokens in (200, 400, 800):
        ttft = A + d * tokens
        found.append(
            summary(
                f"prefill-{tokens}",
                StageKind.PREFILL,
                setting=CEILING,
                users=1,
                prompt_tokens_mean=tokens,
                output_tokens_mean=1,
                p50_ttft=ttft,
                p99_ttft=ttft,
                p50_tpot=None,
                p99_tpot=None,
            )
        )
    return found


def given_(
    slo: Slo = INTERACTIVE,
    stages: list[StageSummary] | None = None,
    *,
    burstiness: float | None = 1.0,
    kv_cache_tokens: int | None = None,
    classes: tuple[StageClass, ...] = (),
    **changes: Any,
) -> ChooseInput:
    stages = stages_of_the_law() if stages is None else stages
    ladder = LadderSettings(
        slo=slo,
        prompt_tokens=Fixed(value=PROMPT),
        output_tokens=Fixed(value=OUTPUT),
        burstiness=burstiness,
        max_concurrency=512,
        ceiling=CEILING,
        max_stage_duration_s=120.0,
        control_tolerance=0.15,
        kv_cache_tokens=kv_cache_tokens,
        prefill_tokens=(200, 400, 800),
    )
    traffic = TwinTraffic(Fixed(value=PROMPT), Fixed(value=OUTPUT), burstiness, kv_cache_tokens, classes)
    value = ChooseInput(
        ladder=ladder,
        stages=stages,
        engine=fit_engine(stages, traffic),
        traffic=traffic,
        bounds=SettingBounds(lowest=Setting(max_num_seqs=4, max_num_batched_tokens=256), highest=CEILING),
        previous=[],
        sequence_grid=valid_sequence_grid(CEILING.max_num_seqs),
        token_grid=valid_token_grid(CEILING.max_num_batched_tokens),
    )
    return replace(value, **changes)


@pytest.fixture(autouse=True)
def _small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules are the same with fewer requests; the P99s are coarser."""
    monkeypatch.setattr(choose_module, "REQUESTS", 500)
    monkeypatch.setattr(choose_module, "RUNS", 4)


def chosen(value: ChooseInput) -> Chosen:
    choice = choose(value)
    assert isinstance(choice, Chosen), choice
    return choice


def certification(offered: float, verdict: Verdict, misses: int = 50, setting: Setting = CEILING) -> Certification:
    return Certification(
        attempt=1,
        setting=setting,
        offered_requests_per_second=offered,
        promised_requests_per_second=offered / 1.2,
        verdict=verdict,
        requests=1000,
        misses=misses,
    )


def test_a_tighter_tpot_target_takes_fewer_sequences_and_a_lower_rate():
    loose, tight = chosen(given_(Slo(tpot_s=0.05))), chosen(given_(Slo(tpot_s=0.02)))
    assert tight.setting.max_num_seqs < loose.setting.max_num_seqs
    assert tight.sustainable < loose.sustainable
    assert tight.bound_by == BoundBy.TPOT


def test_a_tighter_ttft_target_takes_a_lower_rate():
    assert chosen(given_(Slo(ttft_s=0.1))).sustainable < chosen(given_(Slo(ttft_s=1.0))).sustainable


def test_an_e2e_target_alone_is_kept_too():
    tight, loose = chosen(given_(Slo(e2e_s=2.0))), chosen(given_(Slo(e2e_s=6.0)))
    assert tight.bound_by == BoundBy.E2E
    assert "of a whole request at most" in tight.message
    assert tight.sustainable < loose.sustainable


def test_the_rate_stays_below_what_the_ramp_carried():
    choice = chosen(given_())
    users = choice.setting.max_num_seqs
    assert choice.sustainable < users / (OUTPUT * (A + (B + D * PROMPT / OUTPUT) * users))


def test_a_small_kv_cache_limits_the_sequences_and_is_named():
    choice = chosen(given_(Slo(ttft_s=1.0), kv_cache_tokens=10_000))
    assert choice.setting.max_num_seqs <= 32  # 20 of 500 tokens each, and more while they are not at their end
    assert choice.bound_by == BoundBy.KV_CACHE


def test_the_users_bound_limits_the_sequences_and_is_named():
    highest = Setting(max_num_seqs=16, max_num_batched_tokens=8192)
    bounds = SettingBounds(lowest=Setting(max_num_seqs=4, max_num_batched_tokens=256), highest=highest)
    choice = chosen(given_(Slo(ttft_s=1.0), bounds=bounds))
    assert choice.setting.max_num_seqs == 16
    assert choice.bound_by == BoundBy.BOUND


def test_without_targets_more_sequences_than_the_flat_part_needs_are_not_taken():
    choice = chosen(given_(Slo()))
    assert choice.bound_by in (BoundBy.KNEE, BoundBy.BOUND)
    users = choice.setting.max_num_seqs
    assert choice.sustainable == pytest.approx(users / (OUTPUT * (A + (B + D * PROMPT / OUTPUT) * users)), rel=0.05)


def test_a_throughput_that_is_flat_early_is_bound_by_the_knee():
    choice = chosen(given_(Slo(), stages_of_the_law(per_prefill_token_s=10 * D)))
    assert choice.bound_by == BoundBy.KNEE
    assert choice.setting.max_num_seqs < 128


def test_each_class_of_a_mix_is_held_to_its_own_target():
    def kind(name: str, ttft_s: float) -> StageClass:
        lengths = {"prompt_tokens": Fixed(value=PROMPT), "output_tokens": Fixed(value=OUTPUT)}
        return StageClass(name=name, weight=1, slo=Slo(ttft_s=ttft_s), **lengths)

    loose = chosen(given_(Slo(ttft_s=1.0), classes=(kind("a", 1.0), kind("b", 1.0))))
    mixed = chosen(given_(Slo(ttft_s=1.0), classes=(kind("a", 1.0), kind("b", 0.06))))
    assert mixed.sustainable < 0.9 * loose.sustainable


def test_values_come_from_the_grids_and_never_exceed_the_ceiling():
    value = given_()
    choice = chosen(value)
    assert choice.setting.max_num_seqs in value.sequence_grid
    assert choice.setting.max_num_batched_tokens in value.token_grid
    assert choice.setting.max_num_batched_tokens >= choice.setting.max_num_seqs


def test_no_budget_is_larger_than_a_prefill_that_was_seen():
    few = given_(Slo(ttft_s=0.5), stages_of_the_law(2), bounds=SettingBounds(
        lowest=Setting(max_num_seqs=1, max_num_batched_tokens=256), highest=CEILING))  # fmt: skip
    assert chosen(few).setting.max_num_batched_tokens <= 800


def test_never_more_sequences_than_the_ramp_had_users():
    assert chosen(given_(Slo(ttft_s=1.0), stages_of_the_law(32))).setting.max_num_seqs <= 32


def test_a_lower_bound_above_all_evidence_is_kept_to():
    lowest = Setting(max_num_seqs=64, max_num_batched_tokens=2048)
    bounds = SettingBounds(lowest=lowest, highest=CEILING)
    choice = chosen(given_(Slo(ttft_s=1.0), stages_of_the_law(16), bounds=bounds))
    assert choice.setting.max_num_seqs == 64


def test_bounds_above_the_ceiling_leave_nothing_to_choose():
    lowest = Setting(max_num_seqs=256, max_num_batched_tokens=16384)
    choice = choose(given_(bounds=SettingBounds(lowest=lowest, highest=lowest)))
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.INCONCLUSIVE
    assert "Widen spec.parameters" in choice.message


@pytest.mark.parametrize(("slo", "named"), [(Slo(tpot_s=0.001), "p99TPOT"), (Slo(ttft_s=0.001, tpot_s=1.0), "p99TTFT")])
def test_a_target_that_one_request_misses_is_impossible_and_named(slo, named):
    choice = choose(given_(slo))
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.IMPOSSIBLE_SLO
    assert named in choice.message


def test_all_targets_that_one_request_misses_are_named_in_one_message():
    choice = choose(given_(Slo(ttft_s=0.001, tpot_s=0.001)))
    assert isinstance(choice, NoChoice)
    assert choice.message.startswith("With 1 request at a time P99 TTFT is ")
    assert ", above spec.slo.p99TTFT 1ms, and P99 TPOT is " in choice.message
    assert ", above spec.slo.p99TPOT 1ms: no setting of the two limits can hold them." in choice.message


def test_an_e2e_target_that_lone_requests_miss_is_impossible():
    stages = [s.with_changes(p50_e2e=0.9, p99_e2e=1.1) for s in stages_of_the_law()]
    choice = choose(given_(Slo(e2e_s=0.1), stages))
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.IMPOSSIBLE_SLO
    assert "spec.slo.p99E2E" in choice.message


def test_targets_that_no_setting_is_predicted_to_hold_at_any_rate_are_impossible():
    choice = choose(given_(Slo(e2e_s=0.5)))  # a lone request takes 0.9 s, but no stage tells how long
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.IMPOSSIBLE_SLO
    assert "predicted" in choice.message


def spoiled(users: int, how: dict[str, Any]) -> list[StageSummary]:
    """The ladder, with every try of one level spoiled."""
    return [s.with_changes(**how) if s.name == f"ramp-{users}" else s for s in stages_of_the_law()]


SPOILED: list[dict[str, Any]] = [
    {"verdict": Verdict.INVALID, "message": "The client was late by 30 ms."},
    {"ended_by": NOT_STEADY, "message": "Ended because 60 s have passed; the requests in flight drift."},
]


@pytest.mark.parametrize("how", SPOILED, ids=["invalid", "not steady"])
def test_targets_are_not_impossible_where_the_lone_user_was_not_measured(how):
    choice = choose(given_(Slo(tpot_s=0.001), spoiled(1, how)))
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.INCONCLUSIVE
    assert "1 user(s)" in choice.message
    assert how["message"].rstrip(".") in choice.message


@pytest.mark.parametrize("how", SPOILED, ids=["invalid", "not steady"])
def test_no_prediction_makes_targets_impossible_where_a_level_was_not_measured(how):
    choice = choose(given_(Slo(e2e_s=0.5), spoiled(8, how)))
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.INCONCLUSIVE
    assert "8 user(s)" in choice.message


def test_a_lone_user_that_misses_decides_whatever_became_of_the_higher_levels():
    choice = choose(given_(Slo(tpot_s=0.001), spoiled(8, SPOILED[0])))
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.IMPOSSIBLE_SLO


def test_a_level_that_was_measured_in_the_end_counts_as_measured():
    tried_before = summary("ramp-1", setting=CEILING, users=1, **SPOILED[0])
    choice = choose(given_(Slo(tpot_s=0.001), [tried_before, *stages_of_the_law()]))
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.IMPOSSIBLE_SLO


def test_without_a_usable_ramp_nothing_is_concluded():
    choice = choose(given_(stages=[summary(verdict=Verdict.INVALID)]))
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("verdict", "misses", "share"),
    [
        (Verdict.FAIL, 50, AFTER_FAIL),
        (Verdict.INCONCLUSIVE, 4, AFTER_INCONCLUSIVE),
        (Verdict.INCONCLUSIVE, 3, AFTER_DOUBT),
    ],
)
def test_after_a_certification_that_did_not_pass_less_is_offered(verdict: Verdict, misses: int, share: float):
    setting = chosen(given_()).setting
    offered = OFFERED_SHARE * sustainable_with(given_(), setting)
    tried = certification(offered, verdict, misses, setting)
    again = sustainable_with(given_(previous=[tried]), setting)
    assert OFFERED_SHARE * again == pytest.approx(share * offered, rel=0.02)
    lower = certification(share * offered, Verdict.FAIL, setting=setting)
    assert sustainable_with(given_(previous=[tried, lower]), setting) < 0.9 * again


def test_what_a_certification_took_off_one_setting_is_taken_off_all_in_proportion():
    tried, other = (Setting(max_num_seqs=n, max_num_batched_tokens=1024) for n in (16, 64))
    predicted = {setting: sustainable_with(given_(), setting) for setting in (tried, other)}
    failed = certification(OFFERED_SHARE * predicted[tried], Verdict.FAIL, setting=tried)
    after = {setting: sustainable_with(given_(previous=[failed]), setting) for setting in (tried, other)}
    assert predicted[other] > 1.2 * predicted[tried]
    assert after[other] / predicted[other] == pytest.approx(after[tried] / predicted[tried], rel=0.02)
    assert after[other] > OFFERED_SHARE * predicted[tried]


def test_a_certification_that_passed_or_offered_what_is_no_longer_predicted_takes_nothing_off():
    setting = chosen(given_()).setting
    predicted = sustainable_with(given_(), setting)
    passed = certification(0.5 * predicted, Verdict.PASS, setting=setting)
    far_beyond = certification(3 * predicted, Verdict.FAIL, setting=setting)
    assert sustainable_with(given_(previous=[passed, far_beyond]), setting) == predicted


def told(monkeypatch: pytest.MonkeyPatch, rates: Callable[[Surface, int], float]) -> None:
    """The surface finds these rates, by max_num_seqs, instead of its own."""

    def highest_rate(surface: Surface, limits: TwinLimits, *, least: float = 0.0, near: float | None = None) -> float:
        rate = rates(surface, limits.max_num_seqs)
        return rate if rate >= least else 0.0

    monkeypatch.setattr(Surface, "highest_rate", highest_rate)


def test_settings_below_the_best_of_the_law_are_looked_at_where_the_best_is_uncertain(monkeypatch: pytest.MonkeyPatch):
    def rates(surface: Surface, sequences: int) -> float:
        by_law = {128: 10.0, 32: 8.0}.get(sequences, 1.0)
        return by_law if len(surface.laws) == 1 else {128: 5.0, 32: 7.0}.get(sequences, 0.5)

    told(monkeypatch, rates)
    choice = chosen(given_())
    assert (choice.setting.max_num_seqs, choice.sustainable) == (32, 7.0)


def test_of_settings_alike_one_that_may_carry_more_is_taken(monkeypatch: pytest.MonkeyPatch):
    by_law, with_more_cache = {32: 10.5, 72: 10.5}, {32: 10.5, 72: 12.0}

    def rates(surface: Surface, sequences: int) -> float:
        if len(surface.laws) > 1:
            return {32: 10.0, 72: 10.05}.get(sequences, 1.0)
        return (with_more_cache if (surface.traffic.kv_cache_tokens or 0) > 20_000 else by_law).get(sequences, 1.0)

    told(monkeypatch, rates)
    tight = given_(kv_cache_tokens=20_000)
    assert chosen(tight).setting.max_num_seqs == 72
    # Once engines with other budgets have told their sizes, these count.
    known = replace(tight, traffic=replace(tight.traffic, caches=((1024, 22_000), (8192, 20_000))))
    assert chosen(known).setting.max_num_seqs == 32
    by_law[72] = 11.0
    assert chosen(known).setting.max_num_seqs == 72


def test_what_a_failed_certification_measured_lowers_the_rate():
    first = chosen(given_(Slo(tpot_s=0.05)))
    failed = summary(
        "certify-1",
        StageKind.CERTIFY,
        setting=first.setting,
        users=None,
        offered_requests_per_second=0.95 * first.sustainable,
        p99_tpot=0.06,
        requests=1000,
        verdict=Verdict.FAIL,
    )
    again = chosen(
        given_(
            Slo(tpot_s=0.05),
            [*stages_of_the_law(), failed],
            previous=[certification(0.95 * first.sustainable, Verdict.FAIL)],
        )
    )
    assert again.sustainable < first.sustainable


def test_the_message_says_what_is_expected():
    message = chosen(given_()).message
    assert "requests/s" in message
    assert "P99 TTFT" in message


def test_the_same_input_gives_the_same_choice():
    assert choose(given_()) == choose(given_())


@settings(max_examples=8, deadline=None)
@given(
    st.floats(0.01, 5),
    st.floats(0.005, 0.5),
    st.sampled_from([8, 32, 128]),
    st.sampled_from([None, 0.25, 1.0, 4.0]),
    st.sampled_from([None, 2_000, 50_000]),
)
def test_any_targets_give_a_choice_inside_the_bounds_or_a_reason(ttft_s, tpot_s, highest, burstiness, kv):
    value = given_(
        Slo(ttft_s=ttft_s, tpot_s=tpot_s), stages_of_the_law(highest), burstiness=burstiness, kv_cache_tokens=kv
    )
    choice = choose(value)
    assert choice.message
    if isinstance(choice, Chosen):
        low, high = value.bounds.lowest, value.bounds.highest
        assert low.max_num_seqs <= choice.setting.max_num_seqs <= high.max_num_seqs
        assert low.max_num_batched_tokens <= choice.setting.max_num_batched_tokens <= high.max_num_batched_tokens
        assert choice.sustainable > 0


def test_a_knee_that_is_a_hard_cap_is_not_passed_and_is_told():
    free, capped = chosen(given_()), chosen(given_(knee_cap=KneeCap(12, "The knee caps it at 12.")))
    assert capped.setting.max_num_seqs <= 12 < free.setting.max_num_seqs
    assert capped.bound_by == BoundBy.KNEE
    assert capped.message.endswith("The knee caps it at 12.")
    assert capped.sustainable < free.sustainable


def test_a_knee_below_the_lower_bound_leaves_nothing_to_choose():
    choice = choose(given_(knee_cap=KneeCap(2, "The knee caps it at 2.")))
    assert isinstance(choice, NoChoice)
    assert choice.reason == RunOutcome.INCONCLUSIVE
    assert "spec.parameters.maxNumSeqs.min" in choice.message
