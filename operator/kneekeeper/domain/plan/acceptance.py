"""What of a profile is acted on; the rest is refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kneekeeper.api.serving_profile import (
    Objective,
    ProbeTarget,
    Retune,
    RetuneTrigger,
    ServingProfileSpec,
    UpdateMethod,
    Workload,
)
from kneekeeper.domain.plan.requests import is_real_time
from kneekeeper.domain.prometheus_labels import match_labels_problem
from kneekeeper.domain.schedules import schedule_problem, spec_in_force
from kneekeeper.domain.target import bounds_problem
from kneekeeper.domain.targets.kinds import is_unknown, known_kinds, target_kind, why_unmeasured
from kneekeeper.domain.windows import window_problem

_LONGEST_SLO_S = 600.0
_METHODS = (UpdateMethod.AUTO, UpdateMethod.ARGS, UpdateMethod.ENV, UpdateMethod.CONFIG_MAP)
_METHODS_OF_MADE = (UpdateMethod.AUTO, UpdateMethod.OWNER)
_METHODS_OF_UNKNOWN = (UpdateMethod.AUTO,)


@dataclass(frozen=True)
class SpecProblem:
    """Why a profile is not accepted; `message` names the field and the next step."""

    reason: str
    message: str


def spec_problem(spec: ServingProfileSpec) -> SpecProblem | None:
    """The first thing to correct, or all that this version does not act on; None where all is well."""
    targets = [spec.slo.p99_ttft, spec.slo.p99_tpot, spec.slo.p99_e2e]
    if spec.objective == Objective.INTERACTIVE and all(t is None for t in targets):
        return SpecProblem("NoTarget", "Set spec.slo.p99TTFT, spec.slo.p99TPOT or spec.slo.p99E2E, for example 500ms.")
    if any(t is not None and not 0 < t <= _LONGEST_SLO_S for t in targets):
        return SpecProblem("InvalidTarget", "spec.slo targets must be above 0 and at most 10m.")
    contradiction = _throughput_problem(spec) if spec.objective is Objective.THROUGHPUT else None
    if contradiction is not None:
        return SpecProblem("InvalidObjective", contradiction)
    bounds = bounds_problem(spec.parameters)
    if bounds is not None:
        return SpecProblem("InvalidBounds", bounds)
    labels = match_labels_problem(spec.metrics.match_labels)
    if labels is not None:
        return SpecProblem("InvalidMatchLabels", labels)
    window = window_problem(spec.probe.window) if spec.probe.window is not None else None
    if window is not None:
        return SpecProblem("InvalidWindow", f"spec.probe.window: {window}.")
    if spec.probe.window is None and ProbeTarget.IN_PLACE in spec.probe.allow:
        return SpecProblem(
            "InvalidWindow",
            "spec.probe.allow InPlace loads a serving pod: set spec.probe.window to hours in which it has no users.",
        )
    lengths = _lengths_problem(spec.workload)
    if lengths is not None:
        return SpecProblem("InvalidWorkload", lengths)
    unsupported = list(_not_acted_on(spec))
    if unsupported:
        return SpecProblem(
            "NotSupported",
            f"This version does not act on {', '.join(unsupported)}. Remove it to have the profile accepted.",
        )
    return next(_problems_of_schedules(spec), None)


def _problems_of_schedules(spec: ServingProfileSpec) -> Iterator[SpecProblem]:
    """Of the entries' times, and of the profile that each makes in its hours."""
    for entry, schedule in enumerate(spec.schedules):
        told = schedule_problem(schedule)
        if told is not None:
            yield SpecProblem("InvalidSchedule", f"spec.schedules[{entry}]: {told}.")
        asked = spec_in_force(spec, entry)
        # What starts a run is the profile's own, and judged with it.
        problem = None if asked is None else spec_problem(asked.with_changes(retune=Retune()))
        if problem is not None:
            yield SpecProblem(problem.reason, f"With spec.schedules[{entry}]: {problem.message}")


def _lengths_problem(workload: Workload | None) -> str | None:
    """What of the lengths and classes contradicts itself; None where nothing does, or all is left out."""
    if workload is None:
        return None
    for name, source in (("traceRef", workload.trace_ref), ("prompts", workload.prompts)):
        reference = None if source is None else source.config_map_ref or source.persistent_volume_claim
        if reference is not None and ".." in (reference.key or "").split("/"):
            return f"spec.workload.{name} names a file outside of its source: write its key without '..'."
    both = (workload.prompt_tokens, workload.output_tokens)
    if not workload.classes and any(each is None for each in both):
        return "spec.workload needs promptTokens and outputTokens, or classes."
    if workload.classes and any(each is not None for each in both):
        return "spec.workload has classes, which have their own lengths: remove its promptTokens and outputTokens."
    if workload.classes and workload.prompts is not None:
        return "spec.workload.prompts are of one kind: remove them or spec.workload.classes."
    for kind in workload.classes:
        if kind.slo is not None and not kind.slo.sets_a_latency_target():
            return f"Set a target in slo of class {kind.name}, such as p99TTFT, or leave its slo out for the profile's."
    return None


def _throughput_problem(spec: ServingProfileSpec) -> str | None:
    """What cannot be asked for beside the most tokens: whatever is about latency, or about a rate."""
    latency = "judges no latency: remove it, or ask for objective Interactive"
    if spec.slo.sets_a_latency_target():
        return f"spec.objective Throughput has no targets, and spec.slo {latency}."
    workload = spec.workload
    for kind in workload.classes if workload is not None else []:
        if kind.slo is not None and kind.slo.sets_a_latency_target():
            return f"spec.objective Throughput has no targets, and the slo of class {kind.name} {latency}."
    if is_real_time(workload):
        return (
            "spec.objective Throughput keeps the engine full, and spec.workload.arrivals.traceTime RealTime asks for "
            "the trace's own rate: remove one of them."
        )
    if RetuneTrigger.SLO_BREACH in spec.retune.on:
        return "spec.objective Throughput has no targets that could be missed: remove SLOBreach from spec.retune.on."
    return None


def _not_acted_on(spec: ServingProfileSpec) -> Iterator[str]:
    ref = spec.target_ref
    target, unknown = target_kind(ref.api_version, ref.kind), is_unknown(ref.api_version, ref.kind)
    if target is None and not unknown:
        why = why_unmeasured(ref.api_version, ref.kind)
        how = "measure it with kneekeeper probe and set the limits by kneekeeper patch"
        told = f"{why}: {how}" if why else f"it acts on {known_kinds()}"
        yield f"spec.targetRef of kind {ref.api_version}/{ref.kind} ({told})"
    if spec.parameters.knee_elasticity_percent is not None and ProbeTarget.PASSIVE in spec.probe.allow:
        yield "spec.parameters.kneeElasticityPercent beside spec.probe.allow Passive (it has no ramp to show the knee)"
    for option in spec.probe.allow:
        if option is ProbeTarget.PASSIVE and spec.objective is Objective.THROUGHPUT:
            yield "spec.probe.allow Passive beside objective Throughput (production does not keep its engines full)"
    in_place = ProbeTarget.IN_PLACE in spec.probe.allow
    if in_place and spec.objective is Objective.THROUGHPUT:
        yield "spec.probe.allow InPlace beside objective Throughput (no other setting can be proven on a serving pod)"
    if in_place and spec.workload is None:
        yield "spec.probe.allow InPlace without spec.workload (what is learned would be the probe's own requests)"
    if in_place and RetuneTrigger.SLO_BREACH in spec.retune.on:
        yield "spec.retune.on SLOBreach beside spec.probe.allow InPlace (a probe's misses would start the next probe)"
    if RetuneTrigger.TRAFFIC in spec.retune.on and spec.workload is not None:
        yield (
            "spec.retune.on Traffic beside spec.workload (a run would measure the declared traffic again: leave "
            "spec.workload out to have it learned)"
        )
    method, made = spec.update_policy.method, target is not None and bool(target.makes)
    if method not in (_METHODS_OF_UNKNOWN if unknown else _METHODS_OF_MADE if made else _METHODS):
        why = "its controller makes the words" if made or unknown else "it has no such place"
        yield f"spec.updatePolicy.method {method} of a {ref.kind} ({why})"
