"""What holds of every page: no number of its own, no serious fault, nothing fetched from elsewhere."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, Response, expect

from tests.dashboard.browser import serious_faults
from tests.dashboard.visits import APPLIED, UPGRADED, open_profile

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def test_the_page_shows_no_number_that_the_api_did_not_give(page: Page, address: str):
    given: set[str] = set()

    def learn(value: Any) -> None:
        if isinstance(value, dict):
            for each in value.values():
                learn(each)
        elif isinstance(value, list):
            for each in value:
                learn(each)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            given.add(f"{value:g}")

    def read(response: Response) -> None:
        if "/api/" in response.url and "changes" not in response.url:
            with suppress(PlaywrightError):  # cut off when the page went elsewhere, so it was not shown either
                learn(response.json())

    page.on("response", read)
    for hash_ in ("#/", APPLIED, UPGRADED):
        page.goto(f"{address}{hash_}")
        page.reload()
        expect(page.locator("[data-value]").first).to_be_visible()
        page.wait_for_load_state("load")
        shown = page.eval_on_selector_all("[data-value]", "all => all.map(e => [e.dataset.value, e.textContent])")
        assert shown
        for value, text in shown:
            assert f"{float(value):g}" in given
            printed = re.sub(r"[^\d.eE-]", "", text.split("\u202f")[0])
            assert float(printed) == pytest.approx(float(value), rel=1e-5)


@pytest.mark.parametrize("name", ["chat as JSON", "chat-replicas as CSV", "throughput as PNG"])
def test_what_is_shown_can_be_taken_away_as_a_file(page: Page, address: str, name: str):
    open_profile(page, address)
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(f"{name}$")).first.click()
    content = Path(download.value.path()).read_bytes()
    if name.endswith("JSON"):
        assert json.loads(content)["row"]["name"] == "chat"
    elif name.endswith("CSV"):
        assert content.decode().splitlines()[0].startswith("pod,node,gpu_product,knee_concurrency")
    else:
        assert content.startswith(b"\x89PNG")
        assert len(content) > 5_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("hash_", ["#/?q=team-search", UPGRADED])
def test_axe_finds_no_serious_fault(page: Page, address: str, hash_: str, scheme: Any):
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(f"{address}{hash_}")
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator(".body.events > *, table.fleet:not([aria-busy])").first).to_be_attached()
    assert serious_faults(page) == []


@pytest.mark.parametrize("hash_", ["#/?q=team-search", APPLIED])
def test_a_phone_scrolls_in_one_direction(page: Page, address: str, hash_: str):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}{hash_}")
    expect(page.locator("main h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_an_unknown_profile_leads_back_to_the_fleet(page: Page, address: str):
    page.goto(f"{address}#/")
    answer = page.request.get(f"{address}api/profiles/prod/nobody")
    assert answer.status == 404
    assert "no such profile" in answer.json()["error"]


def test_nothing_is_fetched_from_elsewhere(page: Page, address: str):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_profile(page, address)
    assert asked
    assert all(url.startswith((address, "blob:", "data:")) for url in asked)
