"""What the doctor makes of what it reads."""

from __future__ import annotations

from typing import Any

import pytest

from kneekeeper import __version__
from kneekeeper.api.model import ConditionStatus
from kneekeeper.cli.checkup import (
    PERSON,
    Check,
    Health,
    judge_operator,
    judge_permissions,
    judge_profile,
    judge_version,
)
from tests.unit.cli import recorded


def deployment(ready: int, version: str | None) -> dict[str, Any]:
    labels = {} if version is None else {"app.kubernetes.io/version": version}
    return {
        "metadata": {"name": "kneekeeper", "namespace": "kneekeeper-system", "labels": labels},
        "status": {"readyReplicas": ready},
    }


@pytest.mark.parametrize(
    ("version", "health"),
    [("v1.34.4", Health.GOOD), ("v1.30.0+k3s1", Health.GOOD), ("v1.29.9", Health.NOTICE), ("", Health.NOTICE)],
)
def test_an_old_or_unknown_kubernetes_is_noticed(version: str, health: Health):
    assert judge_version({"gitVersion": version}).health is health


@pytest.mark.parametrize(
    ("found", "health", "next_step"),
    [
        ([], Health.BAD, "Install the chart kneekeeper."),
        ([deployment(0, __version__)], Health.BAD, "kubectl -n kneekeeper-system logs deployment/kneekeeper"),
        ([deployment(1, "99.1.0")], Health.NOTICE, "Use the same version of both."),
        ([deployment(1, __version__)], Health.GOOD, ""),
        ([deployment(1, None)], Health.GOOD, ""),
    ],
)
def test_an_operator_that_is_absent_down_or_of_another_version_is_told(
    found: list[dict[str, Any]], health: Health, next_step: str
):
    check = judge_operator(found)
    assert check.health is health
    assert next_step in check.next_step


def test_missing_permissions_are_named_as_rules_name_them():
    check = judge_permissions("you", "fine", list(PERSON[:1]), "Ask.")
    assert check == Check(
        "you", Health.BAD, "missing: get servingprofiles.kneekeeper.io (for status, explain, diff)", "Ask."
    )
    assert judge_permissions("you", "fine", [], "Ask.") == Check("you", Health.GOOD, "fine")


@pytest.mark.parametrize(
    ("type_", "health"),
    [("Accepted", Health.BAD), ("TargetFound", Health.BAD), ("MetricsAvailable", Health.NOTICE)],
)
def test_a_profile_that_is_not_accepted_or_finds_nothing_is_told_with_the_reason(type_: str, health: Health):
    profile = recorded.profile()
    assert judge_profile("prod/chat", profile).health is Health.GOOD
    conditions = [
        each.with_changes(status=ConditionStatus.FALSE, reason="Why", message="Because.")
        if each.type == type_
        else each
        for each in profile.status.conditions
    ]
    check = judge_profile("prod/chat", profile.with_changes(status=profile.status.with_changes(conditions=conditions)))
    assert check.health is health
    assert check.message == f"{type_} is False, Why: Because."
    assert "`kneekeeper status chat -n prod`" in check.next_step


def test_a_change_that_nobody_looked_at_points_to_the_operator():
    profile = recorded.profile()
    changed = profile.with_changes(metadata={**profile.metadata, "generation": 2})
    check = judge_profile("prod/chat", changed)
    assert check.health is Health.NOTICE
    assert "operator's log" in check.next_step
