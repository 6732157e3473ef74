"""The KV cache of the engine that is certified, and the rate that follows from its size.

A choice is made with the cache of the ceiling's engine. An engine with a smaller token budget needs less memory for the
activations of a step and leaves more to its cache: 10% where memory is short. Once the chosen engine tells its size,
the rate is predicted anew before anything is offered. The setting stays: to change it would take another start.
"""

from __future__ import annotations

from kneekeeper.api.tuning_run import Choice, TuningRunStatus
from kneekeeper.domain.choose import sustainable_with
from kneekeeper.domain.plan.evaluate import choose_input, evaluate
from kneekeeper.domain.plan.run_in_place import is_in_place
from kneekeeper.domain.plan.throughput_runs import asks_for_throughput

SAME_SIZE = 0.01
"""Of the size that was assumed: no rate is known so well."""


def with_own_cache(status: TuningRunStatus) -> TuningRunStatus:
    """The status with the size of the cache in its last choice, once the engine tells it, and with the choice's rate
    for that size as long as nothing was offered yet."""
    plan, choice = status.plan, status.choices[-1]
    assert plan is not None  # frozen by Preflight
    told = status.clone.kv_cache_tokens if status.clone is not None else None
    if told is None or choice.kv_cache_tokens is not None or is_in_place(plan):
        return status
    known = _with(status, choice.with_changes(kv_cache_tokens=told))
    if asks_for_throughput(plan.profile_spec) or _was_offered(status, choice):
        return known
    assumed = choose_input(plan, status, evaluate(plan, status)).traffic.cache_tokens(
        choice.setting.max_num_batched_tokens
    )
    if assumed is None or abs(told - assumed) <= SAME_SIZE * assumed:
        return known
    rate = sustainable_with(choose_input(plan, known, evaluate(plan, known)), choice.setting)
    if told > assumed:  # more cache does not carry less: what is found below is where the search came to rest
        rate = max(rate, choice.sustainable_requests_per_second)
    return _with(known, known.choices[-1].with_changes(sustainable_requests_per_second=rate)) if rate > 0 else known


def _with(status: TuningRunStatus, choice: Choice) -> TuningRunStatus:
    return status.with_changes(choices=[*status.choices[:-1], choice])


def _was_offered(status: TuningRunStatus, choice: Choice) -> bool:
    begun = [stage.name for stage in status.stages]
    begun += [status.current_stage.name] if status.current_stage is not None else []
    return any(name.startswith(f"certify-{choice.attempt}") for name in begun)
