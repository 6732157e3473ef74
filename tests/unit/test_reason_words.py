"""Reasons are followed through the code, and none is left out in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.docs.reason_words import ARGUMENTS, CAUSES, WAITS, Told, UnknownReasonError, told


def reasons_of(folder: Path, code: str) -> list[Told]:
    module = folder / "domain" / "plan" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(code, encoding="utf-8")
    return told(folder)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('conditions.true(ConditionType.READY, "Fine", "All is well.")', Told("Ready", "True", "Fine", "All is well.")),
        ('conditions.false(ConditionType.READY, SOME, f"At {x}.")', Told("Ready", "False", "Constant", "At ….")),
        ('conditions.unknown(ConditionType.READY, f"Over{x}", "")', Told("Ready", "Unknown", "Over…", "")),
        ('waiting(status, "Later", text)', Told(WAITS, "", "Later", "Told above.")),
        ('ended(status, RunOutcome.FAILED, "Broken", "")', Told(CAUSES, "Failed", "Broken", "")),
        ("conditions.false(ConditionType.APPLIED, after.reason, x)", Told("Applied", "False", f"[{ARGUMENTS}]", "")),
    ],
)
def test_a_reason_is_told_with_its_status_and_message(code, expected, tmp_path):
    source = f'SOME = "Constant"\ndef act(conditions, status, after, x):\n    text = "Told above."\n    {code}\n'
    assert reasons_of(tmp_path, source) == [expected]


def test_both_of_a_choice_are_told(tmp_path):
    source = 'def act(conditions, x):\n    conditions.true(ConditionType.READY, "One" if x else "Other", "")\n'
    assert [one.reason for one in reasons_of(tmp_path, source)] == ["One", "Other"]


def test_a_reason_that_is_handed_on_is_told_where_it_is_given(tmp_path):
    source = 'def act(conditions, reason):\n    conditions.true(ConditionType.READY, reason, "")\n'
    assert reasons_of(tmp_path, source) == []


def test_a_reason_of_unknown_origin_is_an_error_that_says_where_it_stands(tmp_path):
    source = 'def act(conditions):\n    conditions.true(ConditionType.READY, found().why, "")\n'
    with pytest.raises(UnknownReasonError, match=r"domain/plan/module\.py, line 2: where the reason found\(\)\.why"):
        reasons_of(tmp_path, source)
