"""The examples of docs/workloads.md are what they say they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.domain.plan.acceptance import spec_problem
from kneekeeper.domain.prompts import read_prompts
from kneekeeper.domain.traces import TraceError, read_trace

PAGE = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def profile_with(workload: dict[str, Any]) -> ServingProfileSpec:
    return ServingProfileSpec.model_validate(
        {"targetRef": {"kind": "Deployment", "name": "chat"}, "slo": {"p99TTFT": "1s", "p99TPOT": "50ms"}} | workload
    )


def test_there_are_examples():
    assert (len(blocks("yaml")), len(blocks("jsonl"))) == (6, 2)


@pytest.mark.parametrize("example", blocks("yaml"))
def test_every_workload_is_accepted(example):
    content = yaml.safe_load(example)
    assert list(content) == ["workload"]
    assert spec_problem(profile_with(content)) is None


def test_the_plain_trace_is_read():
    requests = list(read_trace(blocks("jsonl")[0].splitlines(keepends=True)))
    assert [request[1:] for request in requests] == [(812, 120), (95, 64), (2048, 7)]


def test_the_prompts_are_read():
    text, chat = read_prompts(blocks("jsonl")[1].splitlines(keepends=True))
    assert text.field == {"prompt": "Once upon a time"}
    assert len(chat.field["messages"]) == 2


def test_the_error_is_the_one_that_is_told():
    row = "2024-05-10 00:00:00,12,5\n"
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens\n", *5 * [row], row.replace("12", "x")]
    with pytest.raises(TraceError) as caught:
        list(read_trace(lines))
    [told] = blocks("text")
    assert told.strip() == f"conv-2024.csv: {caught.value}."


@pytest.mark.parametrize(
    ("workload", "reason", "told"),
    [
        ({}, "InvalidWorkload", "needs promptTokens and outputTokens, or classes"),
        (
            {"classes": [{"slo": {"availabilityPercent": 99}}]},
            "InvalidWorkload",
            "Set a target in slo of class chat",
        ),
        ({"classes": [{}], "promptTokens": {"distribution": "Fixed", "value": 5}}, "InvalidWorkload", "their own"),
        ({"classes": [{}], "prompts": {"configMapRef": {"name": "p"}}}, "InvalidWorkload", "of one kind"),
        (
            {"prompts": {"persistentVolumeClaim": {"name": "p", "key": "../token/token"}}},
            "InvalidWorkload",
            "without '..'",
        ),
    ],
)
def test_a_workload_that_contradicts_itself_is_refused_with_the_next_step(workload, reason, told):
    fixed = {"distribution": "Fixed", "value": 5}
    whole = {"name": "chat", "weightPercent": 100, "promptTokens": fixed, "outputTokens": fixed}
    if "classes" in workload:
        workload = workload | {"classes": [whole | kind for kind in workload["classes"]]}
    problem = spec_problem(profile_with({"workload": workload}))
    assert problem is not None
    assert problem.reason == reason
    assert told in problem.message
