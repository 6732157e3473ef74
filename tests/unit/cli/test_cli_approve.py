"""When an approval would do something, and why not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kneekeeper.api.model import Condition
from kneekeeper.api.rollout import Rejected
from kneekeeper.api.serving_profile import ServingProfile, UpdateMode
from kneekeeper.cli.approve import approvable, is_in_force
from kneekeeper.cli.ending import CannotError
from tests.unit.cli import recorded


@pytest.fixture
def profile() -> ServingProfile:
    return recorded.profile()


def test_the_recommendation_that_stands_may_be_approved(profile: ServingProfile):
    found = approvable(profile, None)
    assert found is profile.status.recommendation
    assert approvable(profile, found.hash) is found
    assert is_in_force(profile, found)


def test_there_must_be_one_and_it_must_be_the_one_that_was_seen(profile: ServingProfile):
    with pytest.raises(CannotError, match="recommends 72/384 now, with the hash 032fe92297"):
        approvable(profile, "other")


@pytest.mark.parametrize(
    ("run", "conditions", "told"),
    [
        (None, [], "no recommendation yet; `kneekeeper status chat -n prod` tells what it waits for"),
        (
            "chat-2",
            [("Recommended", "Unknown", "Measuring", "Soon.")],
            "no recommendation yet: TuningRun chat-2 is under",
        ),
        (None, [("Recommended", "False", "ImpossibleSLO", "Raise it.")], "no recommendation, ImpossibleSLO: Raise it."),
        (None, [("Recommended", "True", "PresentIsBest", "As it is.")], "no recommendation, PresentIsBest: As it is."),
        (
            "chat-2",
            [("Accepted", "False", "TargetTaken", "Delete one.")],
            "no recommendation, TargetTaken: Delete one.",
        ),
    ],
)
def test_why_there_is_no_recommendation_is_told(
    profile: ServingProfile, run: str | None, conditions: list[tuple[str, str, str, str]], told: str
):
    found = [
        Condition(type=a, status=b, reason=c, message=d, last_transition_time=datetime(2026, 1, 1, tzinfo=UTC))
        for a, b, c, d in conditions
    ]
    status = profile.status.with_changes(recommendation=None, active_run=run, conditions=found)
    with pytest.raises(CannotError) as refused:
        approvable(profile.with_changes(status=status), None)
    assert f"chat has {told}" in str(refused.value)


def test_a_profile_that_writes_nothing_is_told(profile: ServingProfile):
    policy = profile.spec.update_policy.with_changes(mode=UpdateMode.OFF)
    with pytest.raises(CannotError, match=r"updatePolicy\.mode of chat is Off"):
        approvable(profile.with_changes(spec=profile.spec.with_changes(update_policy=policy)), None)
    with pytest.raises(CannotError, match="kneekeeper resume chat"):
        approvable(profile.with_changes(spec=profile.spec.with_changes(suspend=True)), None)


def test_what_was_rolled_back_for_this_engine_is_not_approved(profile: ServingProfile):
    found = profile.status.recommendation
    assert found is not None
    rejected = Rejected(
        setting=found.setting,
        fingerprint=found.fingerprint,
        cause="It was slower.",
        at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    with pytest.raises(CannotError, match=r"rolled back for this engine \(It was slower"):
        approvable(profile.with_changes(status=profile.status.with_changes(rejected=[rejected])), None)
