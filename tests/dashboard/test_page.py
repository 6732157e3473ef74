"""The page in a real browser, over 500 replicas and more."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, Response, Route, expect

from tests.dashboard.browser import serious_faults
from tests.dashboard.fleet import LARGE, PROFILES, REPLICAS, SLOW, change_loads, recorded, replace, write_fleet

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

APPLIED = "#/p/prod/chat"
UPGRADED = "#/p/support/chat"
STARTS = "all => all.reduce((sum, each) => sum + (each.getAttribute('d').match(/M/g) ?? []).length, 0)"
"""How many shapes stand in paths."""


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


def test_all_500_replicas_of_a_profile_are_on_the_axis_of_its_knee(page: Page, address: str):
    open_profile(page, address, f"#/p/{LARGE[0]}/{LARGE[1]}")
    drawn = {part: page.locator(f".replica.{part}").evaluate_all(STARTS) for part in ("dot", "tick")}
    assert drawn == {"dot": REPLICAS, "tick": REPLICAS}


def test_arrow_keys_tell_each_replica_and_each_point_of_a_chart(page: Page, address: str):
    open_profile(page, address, UPGRADED)
    expect(page.locator(".body.curves .chart .band").first).to_be_attached(timeout=60_000)
    tip = page.locator("#tip")
    page.locator("svg[aria-label^=Replicas]").focus()
    page.keyboard.press("ArrowDown")
    expect(tip).to_contain_text("chat-00")
    first = tip.inner_text()
    page.keyboard.press("ArrowDown")
    expect(tip).not_to_have_text(first)
    expect(page.locator("#said")).to_contain_text("knee")
    page.locator("svg[aria-label^=Throughput]").focus()
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("requests/s: ")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


@pytest.mark.parametrize("chart", ["Throughput", "Replicas"])
def test_what_is_drawn_anew_keeps_the_keyboards_focus(page: Page, address: str, chart: str):
    held: list[Route] = []
    page.route("**/band", lambda route: held.append(route))
    open_profile(page, address, UPGRADED)
    drawing = page.locator(f"svg[aria-label^={chart}]")
    drawing.focus()
    first = drawing.element_handle()
    expect(page.locator(".body.history")).not_to_be_empty()
    (asked,) = held
    asked.continue_()
    expect(page.locator(".body.curves .chart .band").first).to_be_attached(timeout=60_000)
    expect(drawing).to_be_focused()
    assert chart == "Replicas" or not page.evaluate("(chart) => chart.isConnected", first)


def test_the_pointer_tells_the_replica_of_the_line_that_it_is_on(page: Page, address: str):
    open_profile(page, address, f"#/p/{LARGE[0]}/{LARGE[1]}")
    drawing = page.locator("svg[aria-label^=Replicas]")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    told = set()
    for share in (0.2, 0.5, 0.8):
        page.mouse.move(box["x"] + 20, box["y"] + share * box["height"])
        expect(page.locator("#tip")).to_contain_text("headroom")
        told.add(page.locator("#tip b").inner_text())
    assert len(told) == 3


def test_other_loads_of_500_replicas_change_no_chart_and_few_elements(page: Page, address: str, folder: Path):
    """What is added to the page, and not how long that takes: it does not depend on the machine."""
    open_profile(page, address, f"#/p/{LARGE[0]}/{LARGE[1]}")
    expect(page.locator(".title")).to_contain_text("BelowTheKnee")
    expect(page.locator(".body.events")).not_to_be_empty()
    expect(page.locator(".body.curves .chart .band").first).to_be_attached(timeout=60_000)
    page.evaluate("""() => {
        window.added = 0;
        window.before = document.querySelector(".replica.dot.green").getAttribute("d");
        const count = (node) => 1 + [...node.childNodes].reduce((sum, each) => sum + count(each), 0);
        new MutationObserver((records) => {
            for (const each of records) for (const node of each.addedNodes) window.added += count(node);
        }).observe(document.getElementById("main"), { subtree: true, childList: true });
        for (const chart of document.querySelectorAll("svg.chart")) chart.known = true;
    }""")
    change_loads(folder)
    try:
        expect(page.locator(".title")).not_to_contain_text("BelowTheKnee", timeout=60_000)
        page.wait_for_function("document.querySelector('.replica.dot.green').getAttribute('d') !== window.before")
        assert page.evaluate("[...document.querySelectorAll('.body.curves svg.chart')].every((each) => each.known)")
        assert 0 < page.evaluate("window.added") < 3 * REPLICAS
    finally:
        write_fleet(folder)


def test_the_patch_is_copied_as_the_operator_wrote_it(page: Page, address: str):
    open_profile(page, address, UPGRADED)
    page.get_by_role("button", name="Copy the patch").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == recorded("upgraded")[0]["status"]["recommendation"]["patch"]


def test_a_finding_comes_with_its_next_step_and_its_numbers(page: Page, address: str):
    open_profile(page, address, UPGRADED)
    finding = page.locator(".findings li").filter(has_text="KVCacheFull")
    expect(finding).to_contain_text("Lower max-num-seqs, or give the engine more KV cache.")
    expect(finding.locator('[data-value="0.99"]')).to_be_visible()


def test_what_production_tells_has_outliers_first_the_scale_and_the_traffic(page: Page, address: str):
    open_profile(page, address, UPGRADED)
    told = page.locator(".body.production")
    rows = told.locator("tbody tr")
    expect(rows).to_have_count(8)
    slow = rows.first
    expect(slow).to_contain_text(SLOW)
    expect(slow).to_contain_text("look at its GPU's clocks")
    expect(slow.locator('[data-value="76"]')).to_be_visible()
    unknown = rows.filter(has_text="TrafficTooLow").first
    expect(unknown).to_contain_text("the last run")
    expect(unknown.locator('[data-value="21"]')).to_be_visible()
    expect(told).to_contain_text("9 replicas are needed")
    expect(told).to_contain_text("Confidence High")
    expect(told).to_contain_text("Gamma 0.4")
    expect(told.locator('[data-value="51234"]')).to_be_visible()
    expect(told.locator("svg.chart")).to_have_count(2)
    assert page.locator(".replica.dot.orange").evaluate_all(STARTS) == 1


def test_a_profile_of_which_production_tells_nothing_yet_says_what_it_takes(page: Page, address: str):
    open_profile(page, address)
    told = page.locator(".body.production")
    expect(told).to_contain_text("300 finished requests")
    expect(told).to_contain_text("an hour of history")


def test_the_twin_answers_for_a_cell_that_is_picked(page: Page, address: str):
    open_profile(page, address)
    cells = page.locator(".heat .cell")
    expect(cells.first).to_be_visible(timeout=120_000)
    expect(page.locator(".answer")).to_contain_text("highest rate", timeout=60_000)
    with page.expect_response(re.compile("what-if")) as asked:
        cells.first.focus()
        page.keyboard.press("Enter")
    found = asked.value.json()
    label = cells.first.get_attribute("aria-label") or ""
    assert f"max-num-seqs {found['limits']['max_num_seqs']}," in label
    expect(page.locator(".answer .num").first).to_have_attribute(
        "data-value", f"{found['highest_requests_per_second']:g}"
    )


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


def test_a_run_is_followed_live_from_stage_to_stage(page: Page, address: str, folder: Path):
    profile, run = recorded("climbing")
    for each in (profile, run):
        each["metadata"]["namespace"] = "live"
    stages = run["status"]["stages"]
    file = folder / "live.yaml"

    def write(decided: int) -> None:
        run["status"]["stages"] = stages[:decided]
        replace(file, yaml.safe_dump_all([profile, run]))

    write(3)
    try:
        open_fleet(page, address, "?q=live")
        page.goto(f"{address}#/p/live/chat")
        rows = page.locator(".body.stages tbody tr:not(.flying)")
        for decided in range(3, len(stages) + 1):
            write(decided)
            expect(rows).to_have_count(decided)
            expect(rows.last).to_contain_text(stages[decided - 1]["name"])
    finally:
        file.unlink()
    page.goto(f"{address}#/")
    expect(page.locator('a[href="#/p/live/chat"]')).to_have_count(0)


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


def test_by_rate_is_an_address_of_its_own(page: Page, address: str):
    open_profile(page, address)
    page.get_by_role("button", name="by rate").click()
    expect(page).to_have_url(re.compile(r"by=rate$"))
    page.reload()
    expect(page.locator(".body.curves svg.chart").first).to_have_attribute(
        "aria-label", re.compile("requests/s of one")
    )


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
