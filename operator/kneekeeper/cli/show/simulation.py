"""An answer of the twin in words."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from kneekeeper.api.quantities import counted
from kneekeeper.cli.show.listing import BAD, FAINT, GOOD, NOTICE, fact_lines, limits, milliseconds, number
from kneekeeper.domain.views.simulation import Simulation


def simulation_lines(given: Simulation) -> Iterator[Text]:
    """Whether it holds, what P99s come out, how much all replicas carry, and what that costs."""
    verdict = ("holds", GOOD) if given.holds else ("does not hold", BAD)
    replicas = "one replica" if given.replicas == 1 else f"{given.replicas} replicas"
    yield Text.assemble(
        (f"{replicas} with {limits(given.limits)} at {number(given.requests_per_second)} requests/s: ", "bold"), verdict
    )
    facts = [
        (name, f"{milliseconds(value)}{_against(target)}")
        for name, value, target in (
            ("P99 TTFT", given.p99_ttft_ms, given.targets.p99_ttft_ms),
            ("P99 TPOT", given.p99_tpot_ms, given.targets.p99_tpot_ms),
            ("P99 E2E", given.p99_e2e_ms, given.targets.p99_e2e_ms),
        )
    ]
    facts += list(_capacity(given))
    yield from fact_lines(facts, 10)
    for warning in given.warnings:
        yield Text(warning, NOTICE)
    yield Text(f"Predicted from {given.run} with nine of ten runs inside; not measured.", FAINT)


def _against(target_ms: float | None) -> str:
    return "" if target_ms is None else f" of {milliseconds(target_ms)}"


def _capacity(given: Simulation) -> Iterator[tuple[str, str]]:
    predicted, planned = given.replica_capacity_requests_per_second, given.replica_plan_requests_per_second
    hand = f"; plan with {number(planned)}, as a promise keeps 20% in hand" if planned < predicted else ""
    yield "capacity", f"{number(predicted)} requests/s a replica, predicted{hand}"
    if given.replicas > 1:
        spread = (
            f"the busiest gets {number(given.imbalance_percent)}% more than the mean"
            if given.imbalance_percent
            else "if they are evenly spread"
        )
        yield "in all", f"{number(given.capacity_requests_per_second)} requests/s, {spread}"
    needed = given.replicas_needed
    if needed is not None and needed != given.replicas:
        yield "needed", f"{counted(needed, 'replica')} for this rate{', so planned' if planned < predicted else ''}"
    if given.gpu_hours_per_million_output_tokens is not None:
        tokens = number(given.gpu_hours_per_million_output_tokens)
        yield "GPUs", f"{given.gpus}, {tokens} GPU hours for a million output tokens"
    if given.cost_per_hour is not None and given.cost_per_million_output_tokens is not None:
        per_million = number(given.cost_per_million_output_tokens)
        yield "cost", f"{number(given.cost_per_hour)} an hour, {per_million} for a million output tokens"
