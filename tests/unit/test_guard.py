"""The guard of a local server: where its command runs."""

from __future__ import annotations

import os
import subprocess
import sys


def test_the_command_has_a_group_of_its_own_and_shares_the_session():
    told = "import os; print(os.getsid(0), os.getpgid(0) == os.getpid())"
    guard = [sys.executable, "-m", "kneekeeper.local.guard", sys.executable, "-c", told]
    with subprocess.Popen(guard, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read().decode().split() == [str(os.getsid(0)), "True"]
