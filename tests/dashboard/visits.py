"""Ways to the pages, each until it is drawn."""

from __future__ import annotations

from playwright.sync_api import Page, expect

APPLIED = "#/p/prod/chat"
UPGRADED = "#/p/support/chat"


def open_fleet(page: Page, address: str, query: str = "") -> None:
    page.goto(f"{address}#/{query}")
    expect(page.locator("table.fleet tbody tr").first).to_be_visible()
    settled(page)


def settled(page: Page) -> None:
    """A large table is drawn a part in each frame."""
    expect(page.locator("table.fleet:not([aria-busy])")).to_be_visible()


def open_profile(page: Page, address: str, hash_: str = APPLIED) -> None:
    page.goto(f"{address}{hash_}")
    expect(page.locator(".body.curves svg.chart").first).to_be_visible()
