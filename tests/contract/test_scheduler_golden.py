"""The scheduler plans, step for step, what vLLM 0.32's own scheduler planned (take_scheduler_golden.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kneekeeper.domain.scheduler import Request, Scheduler, SchedulerLimits
from kneekeeper.domain.step_plan import StepPlan

_GOLDEN = Path(__file__).parent / "golden" / "vllm-0.32-schedules.json"
CASES: list[dict[str, Any]] = json.loads(_GOLDEN.read_text())


def told(plan: StepPlan) -> str:
    tokens = [f"{name}:{plan.tokens[name]}" for name in sorted(plan.tokens)]
    return " ".join([*tokens, *(f"-{name}" for name in sorted(plan.preempted))])


def run(case: dict[str, Any]) -> list[str]:
    scheduler = Scheduler(
        SchedulerLimits(
            max_num_seqs=case["max_num_seqs"],
            max_num_batched_tokens=case["max_num_batched_tokens"],
            max_model_len=case["max_model_len"],
            kv_blocks=case["num_gpu_blocks"] - 1,
            block_size_tokens=case["block_size"],
            chunked_prefill=case["chunked_prefill"],
            long_prefill_token_threshold=case["long_prefill_token_threshold"],
        )
    )
    arriving = list(enumerate(case["requests"]))
    steps: list[str] = []
    while arriving or scheduler.has_requests:
        while arriving and arriving[0][1]["step"] <= len(steps):
            number, request = arriving.pop(0)
            scheduler.add(Request(str(number), request["prompt"], request["output"]))
        steps.append(told(scheduler.step()))
        scheduler.complete_step()
    return steps


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_each_step_schedules_and_preempts_what_vllm_did(case: dict[str, Any]) -> None:
    assert run(case) == case["steps"]


def test_the_cases_have_what_is_hard() -> None:
    steps = [step for case in CASES for step in case["steps"]]
    assert len(steps) > 1000
    assert sum("-" in step for step in steps) >= 10
    assert any(not case["chunked_prefill"] for case in CASES)
    assert any(case["long_prefill_token_threshold"] for case in CASES)
