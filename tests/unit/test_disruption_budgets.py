"""Which PodDisruptionBudgets keep every serving pod where it is."""

from __future__ import annotations

from typing import Any

from kneekeeper.kube.disruption_budgets import exhausted_budgets

LABELS = {"app": "chat"}


def budget(name: str, selector: dict[str, Any] | None, allowed: int | None) -> dict[str, Any]:
    status = {} if allowed is None else {"status": {"disruptionsAllowed": allowed}}
    return {"metadata": {"name": name}, "spec": {"selector": selector}, **status}


def test_budgets_without_room_over_these_pods_are_named_in_order():
    found = [budget("late", {"matchLabels": LABELS}, 0), budget("all", {}, 0)]
    assert exhausted_budgets(found, LABELS) == ("all", "late")


def test_budgets_with_room_or_over_other_pods_do_not_matter():
    found = [
        budget("room", {"matchLabels": LABELS}, 1),
        budget("other", {"matchLabels": {"app": "web"}}, 0),
        budget("nothing", None, 0),
    ]
    assert exhausted_budgets(found, LABELS) == ()


def test_a_budget_that_was_not_counted_yet_has_no_room():
    assert exhausted_budgets([budget("new", {"matchLabels": LABELS}, None)], LABELS) == ("new",)
