"""The pictures of docs/images: what viewers of several screens see of a dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect

WIDTH, HEIGHT = 1360, 900
PHONE = (390, 844)
TALL = 4800
"""A page that need not scroll has no header over its parts."""
LONGEST_WAIT_MS = 240_000

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


def viewer(browser: Browser, width: int = WIDTH, height: int = HEIGHT, scheme: Scheme = "light") -> Page:
    """A page of its own that moves nothing, so that a picture shows one state; close its context."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(LONGEST_WAIT_MS)
    expect.set_options(timeout=LONGEST_WAIT_MS)
    return context.new_page()


def take_profile(browser: Browser, address: str, images: Path) -> None:
    """One profile whose run is over, in every view; `address` is that of its page."""
    for scheme in SCHEMES:
        page = viewer(browser, scheme=scheme)
        page.goto(address)
        expect(page.locator(".answer .num").first).to_be_visible()
        page.screenshot(path=images / f"profile-{scheme}.png", full_page=True)
        page.context.close()
    page = viewer(browser, height=TALL)
    page.goto(f"{address}?by=rate")
    expect(page.locator(".answer .num").first).to_be_visible()
    page.locator(".body.curves").screenshot(path=images / "by-rate.png")
    page.locator(".body.twin").screenshot(path=images / "twin.png")
    page.context.close()
    page = viewer(browser, *PHONE)
    page.goto(address)
    expect(page.locator(".replica.dot").first).to_be_attached()
    page.screenshot(path=images / "phone.png")
    page.context.close()


def take_run(browser: Browser, address: str, images: Path) -> None:
    """The stages of a run that goes on; `address` is that of the profile's page."""
    page = viewer(browser, height=TALL)
    page.goto(address)
    expect(page.locator(".body.stages tbody tr").first).to_be_visible()
    page.locator(".body.stages").screenshot(path=images / "run.png")
    page.context.close()
