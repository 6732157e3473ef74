"""What of a profile is acted on; the rest is refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kneekeeper.api.serving_profile import (
    LiveChanges,
    Objective,
    ProbeTarget,
    RetuneTrigger,
    ServingProfileSpec,
    UpdateMethod,
    Workload,
)
from kneekeeper.domain.target import bounds_problem
from kneekeeper.domain.targets.kinds import known_kinds, target_kind
from kneekeeper.domain.windows import window_problem

_LONGEST_SLO_S = 600.0
_METHODS = (UpdateMethod.AUTO, UpdateMethod.ARGS, UpdateMethod.ENV)
_METHODS_OF_MADE = (UpdateMethod.AUTO, UpdateMethod.OWNER)


@dataclass(frozen=True)
class SpecProblem:
    """Why a profile is not accepted; `message` names the field and the next step."""

    reason: str
    message: str


def spec_problem(spec: ServingProfileSpec) -> SpecProblem | None:
    """The first thing to correct, or all that this version does not act on; None where all is well."""
    targets = [spec.slo.p99_ttft, spec.slo.p99_tpot]
    if spec.objective == Objective.INTERACTIVE and all(t is None for t in targets):
        return SpecProblem("NoTarget", "Set spec.slo.p99TTFT or spec.slo.p99TPOT, for example 500ms.")
    if any(t is not None and not 0 < t <= _LONGEST_SLO_S for t in targets):
        return SpecProblem("InvalidTarget", "spec.slo targets must be above 0 and at most 10m.")
    bounds = bounds_problem(spec.parameters)
    if bounds is not None:
        return SpecProblem("InvalidBounds", bounds)
    window = window_problem(spec.probe.window) if spec.probe.window is not None else None
    if window is not None:
        return SpecProblem("InvalidWindow", f"spec.probe.window: {window}.")
    lengths = _lengths_problem(spec.workload)
    if lengths is not None:
        return SpecProblem("InvalidWorkload", lengths)
    unsupported = list(_not_acted_on(spec))
    if unsupported:
        return SpecProblem(
            "NotSupported",
            f"This version does not act on {', '.join(unsupported)}. Remove it to have the profile accepted.",
        )
    return None


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
        if kind.slo is not None and kind.slo.p99_ttft is None and kind.slo.p99_tpot is None:
            return f"Set slo.p99TTFT or slo.p99TPOT of class {kind.name}, or leave its slo out for the profile's."
    return None


def _not_acted_on(spec: ServingProfileSpec) -> Iterator[str]:
    ref = spec.target_ref
    if target_kind(ref.api_version, ref.kind) is None:
        yield f"spec.targetRef of kind {ref.api_version}/{ref.kind} (it acts on {known_kinds()})"
    workload = spec.workload
    if workload is None:
        yield "a spec.workload that is left out (declare promptTokens and outputTokens)"
    for kind in workload.classes if workload is not None else []:
        if kind.slo is not None and kind.slo.p99_e2e is not None:
            yield f"slo.p99E2E of class {kind.name}"
        if kind.slo is not None and kind.slo.availability_percent is not None:
            yield f"slo.availabilityPercent of class {kind.name}"
    if spec.objective == Objective.THROUGHPUT:
        yield "spec.objective Throughput"
    if spec.slo.p99_e2e is not None:
        yield "spec.slo.p99E2E"
    if spec.slo.availability_percent is not None:
        yield "spec.slo.availabilityPercent"
    if spec.parameters.knee_elasticity_percent is not None:
        yield "spec.parameters.kneeElasticityPercent"
    for option in spec.probe.allow:
        if option in (ProbeTarget.IN_PLACE, ProbeTarget.PASSIVE):
            yield f"spec.probe.allow {option}"
    if spec.metrics.match_labels:
        yield "spec.metrics.matchLabels"
    if spec.schedules:
        yield "spec.schedules"
    if RetuneTrigger.TRAFFIC in spec.retune.on:
        yield "spec.retune.on Traffic (the traffic is declared, a run would measure the same again: edit spec.workload)"
    target, method = target_kind(ref.api_version, ref.kind), spec.update_policy.method
    made = target is not None and bool(target.makes)
    if method not in (_METHODS_OF_MADE if made else _METHODS):
        why = "its controller makes the words" if made else "it has no such place"
        yield f"spec.updatePolicy.method {method} of a {ref.kind} ({why})"
    if spec.update_policy.live_changes == LiveChanges.ALLOWED:
        yield "spec.updatePolicy.liveChanges"
