"""What-if: other targets, other traffic, other limits or N replicas, answered by the twin that was fitted to a run.

The law of the engine is the run's; the twin runs the asked traffic under it. Prompts and answers of other lengths than
were measured, and limits beyond what the ramp covered, are extrapolations: they are answered, and told as such.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kneekeeper.api.model import Setting
from kneekeeper.api.run_plan import RunPlan
from kneekeeper.api.stage import Slo
from kneekeeper.api.tuning_run import TuningRun, Verdict
from kneekeeper.api.workload import Workload
from kneekeeper.domain.certify import OFFERED_SHARE, SAFETY
from kneekeeper.domain.choose import REQUESTS
from kneekeeper.domain.lengths import mean_tokens
from kneekeeper.domain.plan.evaluate import ladder_settings, twin_traffic
from kneekeeper.domain.still_believed import AFTER_FAIL
from kneekeeper.domain.twin.surface import BUSIEST, LOWEST_LOAD, Predicted, Surface
from kneekeeper.domain.views.fleet import Limits, Targets
from kneekeeper.domain.views.twin import Model, model_of, shown_settings, with_targets
from kneekeeper.domain.views.units import four_digits, milliseconds, rounded

FAR = 2.0
"""A mean length this many times the measured one, or its inverse, is far from what the law was fitted to."""

_AS_IN_THE_RUN = Slo()


@dataclass(frozen=True)
class Scenario:
    """What is asked. What is left out is as it was in the run; a rate left out is the highest that holds."""

    setting: Setting | None = None
    requests_per_second: float | None = None
    """Of all replicas together."""
    replicas: int = 1
    imbalance: float = 0.0
    """How much more than the mean the busiest replica gets, as a share of it."""
    slo: Slo = _AS_IN_THE_RUN
    workload: Workload | None = None
    price_per_gpu_hour: float | None = None


@dataclass(frozen=True)
class Simulation:
    """The answer. P99s are upper 90% limits of what the busiest replica shows; rates are requests/s."""

    run: str
    limits: Limits
    present: Limits
    replicas: int
    imbalance_percent: float
    requests_per_second: float
    """Of all replicas together: as asked, else their capacity."""
    busiest_requests_per_second: float
    """Of the replica that gets most."""
    holds: bool
    """Whether the runs together hold all targets."""
    p99_ttft_ms: float
    p99_tpot_ms: float
    p99_e2e_ms: float
    targets: Targets
    replica_capacity_requests_per_second: float
    """The highest rate that one replica is predicted to hold."""
    replica_plan_requests_per_second: float
    """What to plan a replica with: of what is predicted to hold, less what a promise keeps in hand. Without targets
    the same."""
    capacity_requests_per_second: float
    """Of all replicas together: never more than the busiest one allows."""
    replicas_needed: int | None
    """For the asked rate, when it is spread like that and each is planned with; None where no rate was asked, or no
    number holds."""
    gpus: int
    """Of all replicas; 0 where they have none."""
    gpu_hours_per_million_output_tokens: float | None
    cost_per_hour: float | None
    cost_per_million_output_tokens: float | None
    warnings: tuple[str, ...]


def simulation(run: TuningRun, scenario: Scenario) -> Simulation:
    """Some seconds. Raises NoModelError where the run cannot be modelled."""
    model, plan = model_of(run), run.status.plan
    assert plan is not None  # or there would be no model
    surface = _surface(run, plan, model, scenario)
    setting = scenario.setting or model.chosen or plan.present
    limits, spread = surface.traffic.limits(setting), 1 + scenario.imbalance
    throughput = surface.first().capacity(limits)
    has_targets = any(slo.has_target for slo in surface.targets)
    alone = surface.highest_rate(limits, capacity=throughput) if has_targets else BUSIEST * throughput
    failed = _failed_rates(run, plan, scenario, setting)
    alone = min([alone, *(AFTER_FAIL / OFFERED_SHARE * each for each in failed)])
    if scenario.requests_per_second is not None:
        busiest = scenario.requests_per_second / scenario.replicas * spread
    else:
        # Where nothing holds, an almost idle engine shows how far from it the targets are.
        busiest = alone or LOWEST_LOAD * throughput
    rate = busiest * scenario.replicas / spread
    planned = alone / SAFETY if has_targets else alone
    asked = scenario.requests_per_second
    predicted, slo = surface.predicted(limits, busiest), surface.targets[0]
    holds = surface.holds(limits, busiest) and (not failed or busiest <= alone)
    gpus = scenario.replicas * plan.gpus_per_replica
    output_tokens_per_hour = 3600 * rate * mean_tokens(surface.traffic.output_tokens)
    per_million = 1e6 / output_tokens_per_hour
    hourly = None if scenario.price_per_gpu_hour is None else scenario.price_per_gpu_hour * gpus
    return Simulation(
        run=str(run.metadata["name"]),
        limits=Limits.of(setting),
        present=Limits.of(plan.present),
        replicas=scenario.replicas,
        imbalance_percent=four_digits(100 * scenario.imbalance),
        requests_per_second=four_digits(rate),
        busiest_requests_per_second=four_digits(busiest),
        holds=holds,
        p99_ttft_ms=four_digits(1e3 * predicted.p99_ttft_s),
        p99_tpot_ms=four_digits(1e3 * predicted.p99_tpot_s),
        p99_e2e_ms=four_digits(1e3 * predicted.p99_e2e_s),
        targets=Targets(milliseconds(slo.ttft_s), milliseconds(slo.tpot_s), milliseconds(slo.e2e_s)),
        replica_capacity_requests_per_second=four_digits(alone),
        replica_plan_requests_per_second=four_digits(planned),
        capacity_requests_per_second=four_digits(alone * scenario.replicas / spread),
        replicas_needed=math.ceil(asked * spread / planned - 1e-9) if asked is not None and planned > 0 else None,
        gpus=gpus,
        gpu_hours_per_million_output_tokens=rounded(gpus * per_million) if gpus else None,
        cost_per_hour=rounded(hourly),
        cost_per_million_output_tokens=None if hourly is None else rounded(hourly * per_million),
        warnings=(
            *_extrapolations(model, surface, setting),
            *_limits(setting, alone, busiest, throughput, failed),
            *(_doubts(predicted, slo) if holds else ()),
        ),
    )


def best_setting(run: TuningRun, scenario: Scenario) -> Setting:
    """Of the settings that the run covered, the one that carries most in this scenario under the fitted law; of those
    alike the one with the fewest sequences. Some seconds more. Raises NoModelError where the run cannot be modelled."""
    model, plan = model_of(run), run.status.plan
    assert plan is not None  # or there would be no model
    first = _surface(run, plan, model, scenario).first()
    has_targets = any(slo.has_target for slo in first.targets)
    rates = {
        each: first.highest_rate(limits) if has_targets else first.capacity(limits)
        for each in shown_settings(model)
        for limits in [first.traffic.limits(each)]
    }
    return max(rates, key=lambda each: rates[each])


def _surface(run: TuningRun, plan: RunPlan, model: Model, scenario: Scenario) -> Surface:
    """The model's, under the asked traffic and held to the asked targets."""
    surface = model.surface
    if scenario.workload is not None:
        spec = plan.profile_spec.with_changes(workload=scenario.workload)
        settings = ladder_settings(plan.with_changes(profile_spec=spec), run.status)
        traffic = replace(twin_traffic(settings), most_running=surface.traffic.most_running)
        slos = tuple(kind.slo for kind in traffic.classes) or (settings.slo,)
        surface = Surface.drawn(traffic, slos, surface.laws, REQUESTS).with_tails(surface.tails)
    asked = scenario.slo
    return surface.with_targets([with_targets(slo, asked.ttft_s, asked.tpot_s, asked.e2e_s) for slo in surface.targets])


def _failed_rates(run: TuningRun, plan: RunPlan, scenario: Scenario, setting: Setting) -> list[float]:
    """Rates of one replica at which a certification of the setting failed, where no more is asked now than then:
    what was measured counts more than what is predicted."""
    slo, asked = plan.profile_spec.slo, scenario.slo
    pairs = ((asked.ttft_s, slo.p99_ttft), (asked.tpot_s, slo.p99_tpot), (asked.e2e_s, slo.p99_e2e))
    looser = any(now is not None and then is not None and now > then for now, then in pairs)
    if scenario.workload is not None or looser:
        return []
    return [
        tried.offered_requests_per_second
        for tried in run.status.certifications
        if tried.verdict is Verdict.FAIL and tried.setting == setting
    ]


def _extrapolations(model: Model, surface: Surface, setting: Setting) -> list[str]:
    """What makes the answer less sure than the run's own."""
    told, allowed, traffic, measured = [], model.allowed, surface.traffic, model.surface.traffic
    if setting.max_num_seqs > allowed.sequences.value or setting.max_num_batched_tokens > allowed.tokens.value:
        told.append(
            f"{setting} is beyond what the ramp covered ({allowed.sequences.value}/{allowed.tokens.value}): an "
            "extrapolation. Certify it with a run before you rely on it."
        )
    for name, asked, known in (
        ("prompts", traffic.prompt_tokens, measured.prompt_tokens),
        ("answers", traffic.output_tokens, measured.output_tokens),
    ):
        ratio = mean_tokens(asked) / mean_tokens(known)
        if not 1 / FAR <= ratio <= FAR:
            told.append(
                f"The {name} are {ratio:.2g} times as long as those that were measured: an extrapolation. Certify it "
                "with a run of this workload before you rely on it."
            )
    return told


def _doubts(predicted: Predicted, slo: Slo) -> list[str]:
    """Where the upper limit of a P99 that holds is above its target."""
    pairs = (
        ("TTFT", predicted.p99_ttft_s, slo.ttft_s),
        ("TPOT", predicted.p99_tpot_s, slo.tpot_s),
        ("E2E", predicted.p99_e2e_s, slo.e2e_s),
    )
    above = [name for name, upper_s, target_s in pairs if target_s is not None and upper_s > target_s]
    if not above:
        return []
    return [
        f"It holds in all of the model's runs taken together; in more than one of ten alone P99 {' and '.join(above)} "
        "is above its target. Certify it with a run before you rely on it."
    ]


def _limits(setting: Setting, alone: float, busiest: float, throughput: float, failed: Sequence[float]) -> list[str]:
    """What a replica cannot carry, in requests/s."""
    told = []
    if alone <= 0:
        told.append(
            f"{setting} holds the targets at no rate: even at {LOWEST_LOAD:.0%} of its throughput they are missed. Ask "
            "for looser targets or other limits."
        )
    if busiest > throughput:
        told.append(
            f"{busiest:.3g} requests/s are more than a full batch serves ({throughput:.3g}): the queue grows without "
            "end, and P99s say only how far it came."
        )
    if failed:
        told.append(
            f"{setting} failed its certification at {min(failed):.3g} requests/s, so a replica is taken to carry no "
            f"more than {alone:.3g}, whatever is predicted."
        )
    return told
