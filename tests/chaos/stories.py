"""The lives that are lived under faults: together they make the operator do what it can do."""

from __future__ import annotations

from kneekeeper.api.tuning_run import RunStep
from tests.chaos.life import Life, Story, at_step, is_applied

TUNED = Story("tuned")
"""A whole run, whose setting is rolled out and verified."""

LENT = Story(
    "lent",
    spec={"probe": {"allow": ["BorrowReplica"]}},
    spare_gpus=0,
    at=at_step(RunStep.RAMP),
    then=Life.suspend,
    cuts_off=True,
)
"""A replica is borrowed; then the profile is suspended in the middle of the ramp."""

DELETED = Story(
    "deleted", spec={"deletionPolicy": "Restore"}, at=at_step(RunStep.RAMP), then=Life.delete, cuts_off=True
)
"""The profile is deleted in the middle of the ramp."""

CRASHES = Story("crashes", clones_start=False)
"""No engine starts under test."""

RESTORED = Story("restored", spec={"deletionPolicy": "Restore"}, at=is_applied, then=Life.delete)
"""A setting is found; then the profile is deleted, and what stood before is restored."""


ALL = (TUNED, LENT, DELETED, CRASHES, RESTORED)
