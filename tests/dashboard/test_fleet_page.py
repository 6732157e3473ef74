"""The list of all profiles in a real browser: found, sorted, and changed while it is looked at."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx
import pytest
import yaml
from playwright.sync_api import Page, Route, expect

from tests.dashboard.fleet import LARGE, PROFILES, recorded, replace
from tests.dashboard.visits import APPLIED, open_fleet, settled

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def names(page: Page) -> list[str]:
    return page.locator("table.fleet tbody th a").all_inner_texts()


def test_the_fleet_shows_every_profile_with_what_is_in_force(page: Page, address: str):
    open_fleet(page, address)
    rows = page.locator("table.fleet tbody tr")
    expect(rows).to_have_count(PROFILES + 4)
    row = rows.filter(has=page.locator(f'a[href="{APPLIED}"]'))
    status = recorded("applied")[0]["status"]
    expect(row).to_contain_text("BelowTheKnee")
    expect(row.locator(".limits")).to_have_text(re.compile(str(status["engine"]["maxNumSeqs"])))
    expect(row).to_contain_text(status["recommendation"]["promisedRequestsPerSecond"])


def test_words_filter_and_the_address_keeps_them(page: Page, address: str):
    open_fleet(page, address)
    page.keyboard.press("/")
    page.keyboard.type("team-coding suspended")
    expect(page.locator(".bar [role=status]")).to_contain_text(f"of {PROFILES + 4} profiles")
    settled(page)
    found = names(page)
    assert found
    assert all(name.startswith("coding") for name in found)
    page.reload()
    expect(page.locator("#filter")).to_have_value("team-coding suspended")
    settled(page)
    assert names(page) == found


def test_a_column_sorts_both_ways_by_keyboard(page: Page, address: str):
    open_fleet(page, address)
    head = page.get_by_role("button", name="Replicas")
    head.focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Replicas")
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Replicas")
    settled(page)
    assert names(page)[0] == LARGE[1]


def test_a_change_while_the_fleet_is_being_loaded_is_shown(page: Page, address: str, folder: Path):
    profile, _ = recorded("climbing")
    profile["metadata"]["namespace"] = "meanwhile"
    file = folder / "meanwhile.yaml"

    def answer_late(route: Route) -> None:
        old = route.fetch()
        replace(file, yaml.safe_dump(profile))
        while "meanwhile" not in httpx.get(f"{address}api/fleet").text:
            time.sleep(0.1)
        route.fulfill(response=old)

    page.route("**/api/fleet", answer_late)
    try:
        open_fleet(page, address, "?q=meanwhile")
    finally:
        file.unlink(missing_ok=True)


def test_a_change_redraws_the_cells_that_differ_and_takes_no_focus_away(page: Page, address: str, folder: Path):
    (profile, *_), file = recorded("applied"), folder / "changing.yaml"
    profile["metadata"] |= {"name": "changing", "uid": "uid-changing"}
    replace(file, yaml.safe_dump(profile))
    try:
        open_fleet(page, address, "?q=changing")
        row = page.locator("table.fleet tbody tr")
        expect(row).to_contain_text("BelowTheKnee")
        row.get_by_role("link").focus()
        profile["spec"]["suspend"] = True
        replace(file, yaml.safe_dump(profile))
        expect(row).to_contain_text("Suspended")
        expect(row).not_to_contain_text("BelowTheKnee")
        expect(row.get_by_role("link")).to_be_focused()
    finally:
        file.unlink(missing_ok=True)


def test_a_row_that_moves_keeps_the_focus(page: Page, address: str, folder: Path):
    file = folder / "moving.yaml"

    def write(**headroom: int) -> None:
        made = []
        for name, percent in headroom.items():
            (each, *_) = recorded("applied")
            each["metadata"] |= {"namespace": "moving", "name": name, "uid": f"uid-{name}"}
            each["status"]["replicas"] = [{"pod": name, "headroomPercent": percent}]
            made.append(each)
        replace(file, yaml.safe_dump_all(made))

    write(first=10, second=20)
    try:
        open_fleet(page, address, "?q=moving")
        assert names(page) == ["first", "second"]
        for name, order in (("first", {"first": 30, "second": 20}), ("second", {"first": 30, "second": 40})):
            page.get_by_role("link", name=name, exact=True).focus()
            write(**order)
            expect(page.locator("table.fleet tbody th a").last).to_have_text(name)
            settled(page)
            expect(page.get_by_role("link", name=name, exact=True)).to_be_focused()
    finally:
        file.unlink(missing_ok=True)
