"""One server over the fleet, and one browser, for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.dashboard.browser import chromium, dashboard
from tests.dashboard.fleet import write_fleet


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("fleet")
    write_fleet(found)
    return found


@pytest.fixture(scope="session")
def address(folder: Path) -> Iterator[str]:
    with dashboard(folder) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh page that fails the test on any error in its console: what the CSP refuses is one."""
    context = browser.new_context(viewport={"width": 1360, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    found = context.new_page()
    found.set_default_timeout(60_000)
    errors: list[str] = []
    found.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    found.on("pageerror", lambda error: errors.append(str(error)))
    yield found
    context.close()
    assert not errors
