"""The dashboard's server in a process of its own, and Debian's Chromium that looks at it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

_SERIOUS = ("serious", "critical")
_STARTED = re.compile(r"dashboard at (\S+)")


@contextmanager
def dashboard(folder: Path) -> Iterator[str]:
    """Its address while it serves the folder."""
    words = [sys.executable, "-m", "kneekeeper.dashboard", "--from-files", str(folder), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = _STARTED.match(line)
            assert found, f"the dashboard did not start: {line!r}"
            yield found.group(1)
        finally:
            process.terminate()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's own, without a sandbox: tests run as root, on pages of ours alone."""
    program = shutil.which("chromium")
    assert program is not None, "install Chromium: apt-get install --no-install-recommends chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def serious_faults(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds that keeps people out, with the first elements of each."""
    found = Axe().run(page).response["violations"]
    return [
        (fault["id"], [node["html"] for node in fault["nodes"][:3]]) for fault in found if fault["impact"] in _SERIOUS
    ]
