"""Production switched live: the plugin comes with one rollout, then a switch is one write, and the way back."""

from __future__ import annotations

import functools
import json
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kneekeeper.api.model import ConditionStatus, Setting
from kneekeeper.api.tuning_run import RunStep, Verdict
from kneekeeper.domain.actions import WriteWords
from kneekeeper.domain.arguments import Content, Environment
from kneekeeper.domain.live_delivery import PLUGIN_CONTAINER, delivery_in
from kneekeeper.domain.observation import Owner, Unreachable, ViolationShare
from kneekeeper.domain.plan.conditions import ConditionType, find
from kneekeeper.domain.plan.profile import decide
from kneekeeper.domain.plan.profile_live import NO_ANSWER
from kneekeeper.domain.target import Target, resolve
from kneekeeper.livetune.limits import Refusal
from kneekeeper.livetune.messages import PROTOCOL, Report
from tests.unit.plan.live_world import ALLOWED, LIVE_SPEC, LiveWorld
from tests.unit.plan.test_schedules import AT_MORNING, DAY, MORNING, HourlyWorld, go_to
from tests.unit.plan.world import Effect

CEILING = Setting(max_num_seqs=32, max_num_batched_tokens=2048)
UNSUPPORTED = Report(PROTOCOL, "0.99.0", unsupported=Refusal("UnsupportedVersion", "vLLM 0.99.0 is not known."))
SILENT = Unreachable("the live-tuning plugin does not answer: ConnectError")


@dataclass
class HourlyLive(HourlyWorld, LiveWorld):
    """Each run knows its entry's best setting, certified as its plan asks for."""

    spec: dict[str, Any] = field(default_factory=lambda: LIVE_SPEC | {"schedules": [MORNING]})
    certified_live: bool = True

    def tick_run(self, name: str, crash_after: Effect | None = None) -> float:
        before = self.runs[name].status.certifications
        wait_s = super().tick_run(name, crash_after)
        run = self.runs.get(name)
        if (
            self.certified_live
            and run is not None
            and run.status.certifications
            and not before
            and run.status.plan is not None
        ):
            live = [c.with_changes(started_with=run.status.plan.live_start) for c in run.status.certifications]
            self.runs[name] = run.with_changes(status=run.status.with_changes(certifications=live))
        return wait_s


def two_mixes(**spec: Any) -> HourlyLive:
    """Before the first morning, with both questions answered and the profile's own setting in force."""
    return _two_mixes(json.dumps(spec, sort_keys=True)).forked()


@functools.cache
def _two_mixes(spec: str) -> HourlyLive:
    world = HourlyLive(spec=LIVE_SPEC | {"schedules": [MORNING]} | json.loads(spec))
    world.run_for(900)
    return world


def present(world: LiveWorld) -> Setting:
    """What is in force as the operator sees it."""
    view = world.workload()
    assert view is not None
    target = resolve(view, world.profile.spec.target_ref, "")
    assert isinstance(target, Target)
    return target.present


def told(world: LiveWorld, type_: ConditionType = ConditionType.LIVE_CHANGES) -> tuple[ConditionStatus, str]:
    condition = find(world.profile.status.conditions, type_)
    assert condition is not None
    return condition.status, condition.reason


def is_delivered(world: LiveWorld) -> bool:
    return delivery_in(world.template["spec"]) is not None


def started(world: LiveWorld) -> list[str]:
    return list(world.engine["args"])[-2:]


def test_the_first_switch_is_a_rollout_that_brings_the_plugin_and_the_pair_it_was_certified_with():
    world = two_mixes()
    assert is_delivered(world)
    assert started(world) == ["--max-num-seqs=32", "--max-num-batched-tokens=2048"]
    assert present(world) == DAY
    seen = world.observe_profile()
    assert seen.workload is not None
    assert [pod.words for pod in seen.pods or ()] == [seen.workload.containers[0].words] * 2
    assert told(world) == (ConditionStatus.TRUE, "SetLive")
    assert told(world, ConditionType.APPLIED)[0] == ConditionStatus.TRUE
    engine = world.profile.status.engine
    assert engine is not None
    assert (engine.max_num_seqs, engine.max_num_batched_tokens) == (DAY.max_num_seqs, DAY.max_num_batched_tokens)


def test_every_later_switch_is_one_write_of_the_config_map_and_restarts_nothing():
    world = two_mixes()
    for day in range(3):
        go_to(world, day, 7.1)
        assert present(world) == AT_MORNING
        assert told(world) == (ConditionStatus.TRUE, "SetLive")
        go_to(world, day, 11.1)
        assert present(world) == DAY
    assert world.template_writes == 1
    assert [kind for kind, _ in world.writes] == ["Deployment", *["ConfigMap"] * 6]
    assert len(world.created_runs) == 2
    assert told(world, ConditionType.DRIFTED)[0] == ConditionStatus.FALSE
    assert not any(event.type == "Warning" for event in world.events)


def test_soon_after_its_rollout_the_config_map_says_what_is_in_force():
    world = HourlyLive()
    world.run_until(lambda w: is_delivered(w) and w.profile.status.rollout is None)  # type: ignore[arg-type]
    world.run_for(60)
    assert world.limits_map() == '{"max_num_seqs": 24, "max_num_batched_tokens": 1536}'
    assert present(world) == DAY


def test_nothing_that_the_user_has_in_the_template_gets_into_the_status():
    world = two_mixes()
    go_to(world, 0, 7.1)
    assert "hunter2" not in world.profile.status.model_dump_json()


def test_a_clone_is_made_of_the_template_as_it_was_and_gets_a_token_of_its_own():
    world = two_mixes()
    view = world.workload()
    assert view is not None
    # A secret for pulling the operator's image harms no clone, and may have been there before.
    assert view.pod_template["spec"].keys() - {"imagePullSecrets"} == world.original["spec"].keys()
    [engine] = view.pod_template["spec"]["containers"]
    assert engine["env"] == world.original["spec"]["containers"][0]["env"]


def test_the_pair_that_engines_start_with_is_one_for_all_hours_and_does_not_grow():
    bounds = {"maxNumSeqs": {"min": 1, "max": 16}, "maxNumBatchedTokens": {"min": 256, "max": 1024}}
    world = two_mixes(schedules=[MORNING | {"parameters": bounds}])
    world.run_until(lambda w: len(w.runs) == 2)
    plans = [run.status.plan for run in world.runs.values()]
    assert {plan.live_start for plan in plans if plan is not None} == {CEILING}
    assert plans[1] is not None
    assert plans[1].bounds.highest == Setting(max_num_seqs=16, max_num_batched_tokens=1024)


def test_default_bounds_stay_what_production_was_started_with():
    world = two_mixes(parameters={})
    plans = [run.status.plan for run in world.runs.values()]
    assert [plan.live_start for plan in plans if plan is not None] == [
        Setting(max_num_seqs=256, max_num_batched_tokens=8192)
    ] * 2


def test_a_setting_that_was_certified_by_a_start_is_not_switched_live():
    world = HourlyLive(certified_live=False)
    world.run_for(900)
    assert not is_delivered(world)
    assert told(world) == (ConditionStatus.FALSE, "NotCertifiedLive")
    go_to(world, 0, 7.1)
    assert present(world) == AT_MORNING
    assert {kind for kind, _ in world.writes} == {"words"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"owner": Owner("Helm", "chat")}, "OwnedByOther"),
        ({"spec": LIVE_SPEC | {"updatePolicy": ALLOWED | {"method": "Env"}}}, "MethodNotLive"),
        ({"environment": Environment({}, {"PYTHONPATH": Content.ANYTHING})}, "NotDelivered"),
    ],
)
def test_elsewhere_switches_go_by_rollout_and_that_is_said(changes: dict[str, Any], reason: str):
    world = HourlyLive(**changes)
    world.run_for(300)
    assert told(world) == (ConditionStatus.FALSE, reason)
    assert told(world, ConditionType.ACCEPTED)[0] == ConditionStatus.TRUE
    assert not is_delivered(world)
    assert all(run.status.plan is None or run.status.plan.live_start is None for run in world.runs.values())


@pytest.mark.parametrize("fault", [UNSUPPORTED, SILENT])
def test_where_the_pods_do_not_confirm_the_plugin_goes_and_the_setting_stays_in_the_words(fault: Report | Unreachable):
    world = HourlyLive(plugin_says=fault)
    world.run_for(3600)
    assert world.template == world.original | {"spec": world.template["spec"]}
    assert not is_delivered(world)
    assert started(world) == ["--max-num-seqs=24", "--max-num-batched-tokens=1536"]
    assert world.template_writes == 2
    assert told(world)[0] == ConditionStatus.FALSE
    assert told(world, ConditionType.APPLIED)[0] == ConditionStatus.TRUE
    go_to(world, 0, 7.1)
    assert present(world) == AT_MORNING
    assert not is_delivered(world)
    trouble = world.profile.status.live_trouble
    assert trouble is not None
    assert trouble.given_up
    assert world.profile.status.rejected == []


def test_an_image_that_the_plugin_does_not_know_runs_with_what_is_in_force_at_once():
    world = two_mixes()
    go_to(world, 0, 7.1)
    world.plugin_says = UNSUPPORTED
    world.run_for(600)
    assert not is_delivered(world)
    assert present(world) == AT_MORNING
    assert started(world) == ["--max-num-seqs=8", "--max-num-batched-tokens=512"]


def test_pods_that_are_silent_for_a_moment_lose_nothing():
    world = two_mixes()
    world.plugin_says = SILENT
    world.run_for(100)
    world.tick_profile()
    assert told(world) == (ConditionStatus.FALSE, NO_ANSWER)
    world.plugin_says = None
    world.run_for(600)
    assert told(world) == (ConditionStatus.TRUE, "SetLive")
    assert world.template_writes == 1


def test_after_a_run_that_a_person_asked_for_it_is_tried_again():
    world = HourlyLive(plugin_says=UNSUPPORTED)
    world.run_for(3600)
    assert not is_delivered(world)
    world.plugin_says = None
    world.annotate("kneekeeper.io/retune", "again")
    world.run_for(3000)
    go_to(world, 0, 7.1)
    world.run_for(600)
    assert is_delivered(world)
    assert told(world) == (ConditionStatus.TRUE, "SetLive")


def test_without_leave_the_plugin_goes_and_what_is_in_force_stays():
    world = two_mixes()
    go_to(world, 0, 7.1)
    world.edit_profile(updatePolicy=ALLOWED | {"liveChanges": "Disabled"})
    world.run_for(120)
    assert not is_delivered(world)
    assert present(world) == AT_MORNING
    assert told(world)[1] == "Disabled"
    template = deepcopy(world.template)
    template["spec"]["containers"][0]["args"] = world.original["spec"]["containers"][0]["args"]
    assert template == world.original


@pytest.mark.parametrize("policy", ["Keep", "Restore"])
def test_a_deleted_profile_leaves_no_plugin(policy: str):
    world = two_mixes(deletionPolicy=policy)
    go_to(world, 0, 7.1)
    world.profile_deleting = True
    world.run_for(60)
    assert not is_delivered(world)
    if policy == "Restore":
        assert world.template == world.original
    else:
        assert started(world) == ["--max-num-seqs=8", "--max-num-batched-tokens=512"]


def test_a_suspended_profile_switches_nothing_and_takes_nothing_out():
    world = two_mixes()
    world.edit_profile(suspend=True)
    go_to(world, 0, 7.5)
    assert is_delivered(world)
    assert present(world) == DAY


def test_what_others_make_of_the_template_is_kept_when_the_plugin_goes():
    world = two_mixes()
    world.engine["env"].insert(0, {"name": "THEIRS", "value": "1"})
    world.template["spec"]["volumes"].append({"name": "theirs", "emptyDir": {}})
    world.edit_profile(updatePolicy=ALLOWED | {"liveChanges": "Disabled"})
    world.run_for(600)
    assert not is_delivered(world)
    assert [v["name"] for v in world.engine["env"]] == ["THEIRS", "HF_HOME", "PASSWORD"]
    assert world.template["spec"]["volumes"] == [{"name": "theirs", "emptyDir": {}}]
    assert "initContainers" not in world.template["spec"]


def test_words_that_somebody_edits_hold_and_count_as_drift():
    world = two_mixes()
    go_to(world, 0, 7.1)
    world.set_args(["serve", "tiny", "--max-num-seqs=6", "--max-num-batched-tokens=2048"])
    world.plugin_says = Report(PROTOCOL, "0.32.0", unsupported=Refusal("StartedOtherwise", "Its own values hold."))
    world.run_for(600)
    assert present(world) == Setting(max_num_seqs=6, max_num_batched_tokens=2048)
    assert told(world, ConditionType.DRIFTED) == (ConditionStatus.TRUE, "ChangedByOther")
    assert told(world) == (ConditionStatus.FALSE, "WordsChanged")
    go_to(world, 0, 11.2)
    assert present(world) == Setting(max_num_seqs=6, max_num_batched_tokens=2048)
    assert world.template_writes == 1


def test_a_template_without_the_plugin_declares_what_its_words_say():
    world = two_mixes()
    world.template = deepcopy(world.original)
    world.set_args(["serve", "tiny", "--max-num-seqs=32", "--max-num-batched-tokens=2048"])
    world.run_for(120)
    assert present(world) == CEILING
    assert told(world, ConditionType.DRIFTED)[0] == ConditionStatus.TRUE


def test_a_config_map_that_somebody_changes_is_drift_and_one_that_is_gone_or_wrong_is_made_again():
    world = two_mixes()
    world.set_limits_map('{"max_num_seqs": 5, "max_num_batched_tokens": 400}')
    world.run_for(400)
    assert present(world) == Setting(max_num_seqs=5, max_num_batched_tokens=400)
    assert told(world, ConditionType.DRIFTED)[0] == ConditionStatus.TRUE
    for text in (None, "not json", '{"max_num_seqs": 500, "max_num_batched_tokens": 400}'):
        world = two_mixes()
        world.set_limits_map(text)
        world.run_for(600)
        assert present(world) == DAY
        assert world.limits_map() == '{"max_num_seqs": 24, "max_num_batched_tokens": 1536}'


def test_a_live_switch_that_makes_things_worse_is_taken_back_live():
    world = two_mixes(schedules=[])
    status = world.profile.status
    assert status.recommendation is not None
    world.violations = ViolationShare(0.0, 0.01, 10_000, window_s=60)
    run = world.runs[status.recommendation.run]
    [proven] = run.status.certifications
    better = proven.with_changes(setting=AT_MORNING)
    choices = [run.status.choices[-1].with_changes(setting=AT_MORNING)]
    assert proven.verdict is Verdict.PASS
    changed = run.status.with_changes(certifications=[better], choices=choices, finished_at=world.now)
    applied = status.applied
    assert applied is not None
    world.runs[status.recommendation.run] = run.with_changes(status=changed)
    references = [r.with_changes(finished_at=world.now) for r in status.runs]
    world.profile = world.profile.with_changes(status=status.with_changes(runs=references))
    world.run_until(lambda w: w.profile.status.rollout is not None)
    assert present(world) == AT_MORNING
    world.run_until(lambda w: w.profile.status.rollout is None or w.profile.status.rollout.verify_from is not None)
    world.violations = ViolationShare(0.4, 0.5, 10_000, window_s=60)
    world.settle()
    assert present(world) == DAY
    assert [r.setting for r in world.profile.status.rejected] == [AT_MORNING]
    assert world.template_writes == 1


def test_pods_that_crash_with_the_plugins_rollout_get_their_template_back():
    world = HourlyLive(crashing_rollouts=True)
    world.run_for(1200)
    assert world.template == world.original
    assert [r.setting for r in world.profile.status.rejected][-1] == DAY


@pytest.mark.parametrize("effect", [Effect.EVIDENCE, Effect.STATUS])
def test_an_operator_that_is_killed_at_any_tick_ends_in_the_same_place(effect: Effect):
    world = HourlyLive()
    for _ in range(60):
        world.tick(crash_after=effect)
        world._pass(world.tick())
    world.run_for(600)
    assert is_delivered(world)
    assert present(world) == DAY
    assert world.template_writes == 1


def test_an_image_that_does_not_start_with_the_plugins_pair_is_started_with_what_is_in_force():
    world = two_mixes()
    world.set_image("vllm/vllm-openai:v0.33.0")
    log = "ValueError: max_num_seqs (32) exceeds available Mamba cache blocks (28). Each decode sequence requires one."
    seen = world.observe_profile()
    assert seen.workload is not None
    stuck = replace(seen.workload, updated_replicas=0)
    old, new = seen.pods or ()
    old = replace(old, image="vllm/vllm-openai:v0.32.0", image_id="old")
    new = replace(new, ready=False, restarts=1, exit_code=1, log_tail=log, words=stuck.containers[0].words)
    decision = decide(replace(seen, workload=stuck, pods=(old, new), live={}))
    [write] = [action for action in decision.actions if isinstance(action, WriteWords)]
    world.perform(write)
    assert not is_delivered(world)
    assert started(world) == ["--max-num-seqs=24", "--max-num-batched-tokens=1536"]


def test_the_default_is_what_it_was():
    world = two_mixes(updatePolicy={"mode": "Apply", "verifyFor": "1m"})
    go_to(world, 0, 7.1)
    assert not is_delivered(world)
    assert find(world.profile.status.conditions, ConditionType.LIVE_CHANGES) is None
    assert PLUGIN_CONTAINER not in str(world.template)
    assert {kind for kind, _ in world.writes} == {"words"}


def test_a_run_certifies_its_choice_live_on_an_engine_that_was_started_as_production_is():
    world = LiveWorld(args=["serve", "tiny", "--max-num-seqs=4", "--max-num-batched-tokens=256"])
    world.run_until(lambda w: bool(w.runs) and w.last_run.status.step == RunStep.DONE)
    status = world.last_run.status
    [proven] = [c for c in status.certifications if c.verdict is Verdict.PASS]
    assert proven.started_with == CEILING
    assert proven.setting != CEILING
    assert status.cost.engine_starts == 1
    assert all(clone.delivered for clone in world.clones.values())


def test_a_run_whose_plugin_does_not_answer_certifies_by_a_start_and_production_is_switched_by_rollout():
    world = LiveWorld(plugin_fault=SILENT)
    world.settle()
    [proven] = [c for c in world.last_run.status.certifications if c.verdict is Verdict.PASS]
    assert proven.started_with is None
    assert told(world) == (ConditionStatus.FALSE, "NotCertifiedLive")
    assert not is_delivered(world)
    assert present(world) == proven.setting
