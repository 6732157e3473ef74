"""Every fuzz target, for some seconds, over what earlier searches found; `make fuzz` searches for longer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import KEPT

BUDGET_S = 4
TARGETS = sorted(path.stem for path in KEPT.parent.glob("*.py") if path.stem != "__init__")

pytestmark = pytest.mark.timeout(600)


def test_of_every_target_something_is_kept_and_of_nothing_else():
    assert sorted(folder.name for folder in KEPT.iterdir()) == TARGETS
    assert all(any((KEPT / target).iterdir()) for target in TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_breaks_a_promise_within_the_budget(target: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", f"tests.fuzz.{target}", f"-max_total_time={BUDGET_S}", f"-artifact_prefix={tmp_path}/"],
        env=os.environ | {"KNEEKEEPER_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    [runs] = re.findall(r"Done (\d+) runs", done.stderr)
    assert int(runs) >= len(list((KEPT / target).iterdir()))
