"""Runs under every kind of declared load, from the profile to the certification."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kneekeeper.api.offered_load import Closed, Empirical, FromTrace, Replay
from kneekeeper.api.sources import PromptsReport, SourcesReport, SourceState, TraceReport
from kneekeeper.api.stage import PromptSource
from kneekeeper.api.tuning_run import RunOutcome, RunStep, StageKind, StageSummary, TuningRunStatus, Verdict
from kneekeeper.domain.plan.conditions import ConditionType, find
from tests.unit.plan.engine_law import RECORDED_RATE
from tests.unit.plan.world import PROFILE_SPEC, World

LENGTHS = Empirical.model_validate({"bins": [{"low": 20, "high": 380, "weight": 1}]})
ANSWERS = Empirical.model_validate({"bins": [{"low": 20, "high": 100, "weight": 1}]})
TRACE = TraceReport(
    requests=10_001,
    left_out=3,
    duration_s=10_000 / RECORDED_RATE,
    gap_variation=2.0,
    prompt_tokens=LENGTHS,
    output_tokens=ANSWERS,
)
READY = SourcesReport(state=SourceState.READY, trace=TRACE, prompts=PromptsReport(prompts=50, longest_bytes=100))
TRACE_REF = {"persistentVolumeClaim": {"name": "traces", "key": "monday.csv"}}
PROMPTS = {"configMapRef": {"name": "prompts"}}
SPECULATIVE = ["--speculative-config", '{"method":"ngram","num_speculative_tokens":3}']


def world_of(workload: dict[str, Any], **world: Any) -> World:
    spec = copy.deepcopy(PROFILE_SPEC)
    spec["workload"] = {**({} if "classes" in workload else spec["workload"]), **workload}
    spec["updatePolicy"] = {"mode": "Recommend"}
    return World(spec=spec, **world)


def run_of(world: World) -> TuningRunStatus:
    world.run_until(lambda seen: bool(seen.runs) and seen.last_run.status.step == RunStep.DONE)
    return world.last_run.status


def stages_of(status: TuningRunStatus, kind: StageKind) -> list[StageSummary]:
    return [stage for stage in status.stages if stage.kind is kind]


def orders_of(world: World, kind: str) -> list[Any]:
    return [spec for spec in world.ordered if spec.id.startswith(kind)]


def test_a_closed_loop_is_certified_by_its_users():
    world = world_of({"arrivals": {"process": "Closed", "users": 4, "thinkTime": "1s"}})
    run = run_of(world)
    [certification] = run.certifications
    assert certification.verdict is Verdict.PASS, certification.message
    assert (certification.offered_users, certification.promised_users) == (5, 4)
    assert {order.arrivals for order in orders_of(world, "certify")} == {Closed(users=5, think_time_s=1.0)}
    assert certification.promised_requests_per_second == pytest.approx(
        stages_of(run, StageKind.CERTIFY)[-1].requests_per_second / 1.2
    )


def test_a_trace_is_read_before_anything_is_started_and_replayed_at_each_rate():
    lengths = {"distribution": "Trace"}
    world = world_of(
        {"promptTokens": lengths, "outputTokens": lengths, "arrivals": {"process": "Trace"}, "traceRef": TRACE_REF},
        sources=SourcesReport(state=SourceState.READING),
    )
    world.run_until_step(RunStep.SOURCES)
    world.run_for(60)
    assert world.last_run.status.waiting_for == "ReadingSources"
    assert not world.clones
    world.sources = READY
    run = run_of(world)
    assert run.certifications[-1].verdict is Verdict.PASS, run.message
    [certify] = orders_of(world, "certify")
    assert certify.arrivals == Replay(rate=run.certifications[-1].offered_requests_per_second)
    assert isinstance(certify.prompt_tokens, FromTrace)
    assert all(isinstance(order.arrivals, Replay) for order in orders_of(world, "open"))
    assert run.sources is not None
    assert run.sources.trace is not None
    assert (run.sources.trace.requests, run.sources.trace.left_out) == (10_001, 3)


def test_a_trace_in_real_time_is_compressed_by_the_safety_factor():
    world = world_of({"arrivals": {"process": "Trace", "traceTime": "RealTime"}, "traceRef": TRACE_REF}, sources=READY)
    run = run_of(world)
    [certify] = orders_of(world, "certify")
    assert certify.arrivals == Replay(speed=1.2)
    assert run.certifications[-1].promised_requests_per_second == pytest.approx(RECORDED_RATE)


def test_a_trace_that_cannot_be_read_ends_the_run_before_anything_is_started():
    fault = "monday.csv: line 7, column 21: contexttokens is 'x', not a whole number of tokens."
    world = world_of(
        {"arrivals": {"process": "Trace"}, "traceRef": TRACE_REF},
        sources=SourcesReport(state=SourceState.FAILED, message=fault),
    )
    run = run_of(world)
    assert (run.outcome, run.cause, run.message) == (RunOutcome.FAILED, "SourceUnreadable", fault)
    assert not [name for name in world.created if "clone" in name]
    assert world.agent_since is None


def test_an_agent_that_never_reads_its_files_ends_the_run_with_what_to_look_at():
    world = world_of({"arrivals": {"process": "Trace"}, "traceRef": TRACE_REF}, agent_broken=True)
    run = run_of(world)
    assert run.cause == "SourceUnreadable"
    assert "ImagePullBackOff" in run.message
    assert "spec.workload.traceRef" in run.message


def test_prompts_are_built_for_the_declared_share_of_hits_and_stages_without_it_do_not_count():
    world = world_of({"prefixCacheHitPercent": 30})
    world.run_until(lambda seen: bool(orders_of(seen, "ramp")))
    ramp = orders_of(world, "ramp")[0]
    assert (ramp.prefix.hit_share, ramp.prefix.block_tokens) == (0.3, 16)
    assert orders_of(world, "control")[0].prefix is None
    run = run_of(world)
    assert run.outcome is RunOutcome.INCONCLUSIVE
    ramps = stages_of(run, StageKind.RAMP)
    assert {stage.verdict for stage in ramps} == {Verdict.INVALID}
    assert all("0.0% of the prompt tokens, 30.0% were wanted" in stage.message for stage in ramps)
    assert {stage.prefix_cache_hit_percent for stage in ramps} == {0.0}


def test_a_share_that_nothing_shows_is_not_taken_for_granted():
    world = world_of({"prefixCacheHitPercent": 30})
    world.run_until(lambda seen: bool(orders_of(seen, "ramp")))
    world.counters_readable = False
    world.run_until(lambda seen: any(stage.name == "ramp-1" for stage in seen.last_run.status.stages))
    [ramp] = stages_of(world.last_run.status, StageKind.RAMP)
    assert ramp.verdict is Verdict.INVALID
    assert "counters could not be read" in ramp.message


def test_hits_that_were_not_asked_for_void_a_stage():
    run = run_of(world_of({}, hit_share=0.2))
    assert run.outcome is RunOutcome.INCONCLUSIVE
    assert stages_of(run, StageKind.CONTROL)[0].verdict is Verdict.INVALID


MIX = [
    {
        "name": "chat",
        "weightPercent": 75,
        "promptTokens": {"distribution": "Fixed", "value": 100},
        "outputTokens": {"distribution": "Fixed", "value": 60},
    },
    {
        "name": "documents",
        "weightPercent": 25,
        "promptTokens": {"distribution": "Fixed", "value": 400},
        "outputTokens": {"distribution": "Fixed", "value": 60},
        "slo": {"p99TTFT": "10s"},
    },
]


def test_a_mix_is_certified_class_by_class():
    world = world_of({"classes": MIX})
    run = run_of(world)
    [certify] = orders_of(world, "certify")
    assert [kind.name for kind in certify.classes] == ["chat", "documents"]
    assert certify.limits.max_requests == 4000
    stage = stages_of(run, StageKind.CERTIFY)[-1]
    assert [(each.name, each.verdict) for each in stage.classes] == [
        ("chat", Verdict.PASS),
        ("documents", Verdict.PASS),
    ]
    assert sum(each.requests for each in stage.classes) == stage.requests


def test_one_class_that_misses_its_own_slo_fails_the_certification():
    classes = copy.deepcopy(MIX)
    classes[1]["slo"] = {"p99TTFT": "10s", "p99TPOT": "1ms"}
    run = run_of(world_of({"classes": classes}))
    assert run.outcome is not RunOutcome.CERTIFIED


def speculating(workload: dict[str, Any], **world: Any) -> World:
    return world_of(
        workload, args=["serve", "tiny", "--max-num-seqs=4", "--max-num-batched-tokens=2048", *SPECULATIVE], **world
    )


def test_speculative_decoding_is_not_judged_by_drawn_prompts():
    world = speculating({})
    run = run_of(world)
    assert (run.outcome, run.cause) == (RunOutcome.INCONCLUSIVE, "UnrepresentativePrompts")
    assert "spec.workload.prompts" in run.message
    assert not world.clones


@pytest.mark.parametrize(("production", "holds"), [(0.65, True), (0.75, False), (None, True)])
def test_with_real_prompts_the_draft_acceptance_must_be_productions(production, holds):
    world = speculating({"prompts": PROMPTS}, sources=READY, production_acceptance=production)
    world.run_until(lambda seen: bool(seen.runs) and bool(seen.last_run.status.stages))
    stage = world.last_run.status.stages[0]
    assert world.ordered[-1].id.startswith("warm-up")
    assert stage.draft_acceptance_percent == pytest.approx(60.0)
    assert (stage.verdict is Verdict.INVALID) is not holds
    if not holds:
        assert "accepted 60.0% of the draft tokens, production 75.0%" in stage.message


def test_real_prompts_go_into_the_stages_under_the_declared_load_only():
    world = world_of({"prompts": PROMPTS}, sources=READY)
    world.run_until(lambda seen: bool(orders_of(seen, "ramp")))
    assert {order.prompts for order in orders_of(world, "ramp")} == {PromptSource.MOUNTED}
    assert {order.prompts for order in orders_of(world, "control")} == {PromptSource.RANDOM}


def test_a_mixture_of_experts_under_drawn_prompts_is_measured_with_a_warning():
    world = world_of({}, args=["serve", "Qwen/Qwen3-30B-A3B", "--max-num-seqs=4", "--max-num-batched-tokens=2048"])
    world.run_until_step(RunStep.CEILING)
    world.tick()
    condition = find(world.last_run.status.conditions, ConditionType.PROMPTS_REPRESENTATIVE)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "UnrepresentativePrompts")
    assert "a mixture of experts" in condition.message
