"""The page of one profile in a real browser: its charts with 500 replicas, its findings, its twin, its run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Page, Route, expect

from tests.dashboard.fleet import LARGE, REPLICAS, SLOW, change_loads, recorded, replace, write_fleet
from tests.dashboard.visits import UPGRADED, open_fleet, open_profile

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


STARTS = "all => all.reduce((sum, each) => sum + (each.getAttribute('d').match(/M/g) ?? []).length, 0)"
"""How many shapes stand in paths."""


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


def test_by_rate_is_an_address_of_its_own(page: Page, address: str):
    open_profile(page, address)
    page.get_by_role("button", name="by rate").click()
    expect(page).to_have_url(re.compile(r"by=rate$"))
    page.reload()
    expect(page.locator(".body.curves svg.chart").first).to_have_attribute(
        "aria-label", re.compile("requests/s of one")
    )
