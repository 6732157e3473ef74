"""`python -m benchmarks.dashboard`: how fast the page is with 500 replicas, and its pictures of docs/images.

Everything is the dashboard's own server over recorded objects, in Chromium. The pictures of a profile and its run are
those of a real cluster: `e2e/test_dashboard.py` takes them. The last line of output is one JSON object:
milliseconds from the start of the navigation to the painted page, and the longest task of the page while every replica
changes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.dashboard.browser import chromium, dashboard
from tests.dashboard.fleet import LARGE, PROFILES, REPLICAS, change_loads, write_fleet
from tests.dashboard.pictures import SCHEMES, TALL, viewer

IMAGES = Path(__file__).parent.parent / "docs/images"
REPEATS = 3
_SETTLED_MS = 1000

_PAINTED = (
    "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
)
_DRAWN = f"() => document.querySelector('.replica.tick')?.getAttribute('d')?.split('M').length === {REPLICAS + 1}"
"""Asked in the page: a locator that is asked again and again would be a part of what is measured."""
_TRACED = ["toplevel", "__metadata"]
_BEGIN, _END = "<!-- make screenshots: numbers -->\n\n", "<!-- end -->"
_MAIN_THREAD, _TASK = "CrRendererMain", "ThreadControllerImpl::RunTask"


@dataclass(frozen=True)
class Task:
    """Of the page's main thread. The CPU's time is what is left of it on a machine that others use too."""

    ms: float
    cpu_ms: float


@dataclass(frozen=True)
class Numbers:
    """Medians over the repeats."""

    replicas: int
    profiles: int
    fleet_ms: float
    fleet_cpu_ms: float
    """Of all tasks of the page's main thread until then."""
    replicas_of_one_profile_ms: float
    fleet_update: Task
    profile_update: Task
    """Of the profile that has all replicas alone."""


def main() -> int:
    """Write the images and print the numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("--page", type=Path, help="a page that is told the numbers")
    parser.add_argument("--images", type=Path, default=IMAGES, help="where the screenshots go")
    arguments = parser.parse_args()
    images: Path = arguments.images
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_fleet(folder)
        with dashboard(folder) as address, chromium() as browser:
            numbers = measure(browser, address, folder)
            take_fleet(browser, address, images)
    if arguments.page is not None:
        write(arguments.page, numbers)
    print(json.dumps(asdict(numbers)))
    return 0


def write(page: Path, numbers: Numbers) -> None:
    """What the CPU worked, in place of what the page had: how long it took depends on what else the machine did.

    Raises ValueError where the page has no place for it.
    """
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f"{page} has no lines {_BEGIN.strip()} and {_END.strip()}")
    rows = [
        ("the fleet, from the navigation until it is painted, all tasks", numbers.fleet_cpu_ms),
        ("the fleet while every row changes, longest task", numbers.fleet_update.cpu_ms),
        ("the profile while every replica changes, longest task", numbers.profile_update.cpu_ms),
    ]
    lines = [
        f"{numbers.profiles} profiles; one has {numbers.replicas} replicas, and the others as many together.",
        "",
        "| | ms |",
        "| --- | --- |",
        *(f"| {what} | {ms:.0f} |" for what, ms in rows),
        "",
    ]
    page.write_text(f"{before}{begin}{chr(10).join(lines)}\n{end}{after}", encoding="utf-8")


def measure(browser: Browser, address: str, folder: Path, repeats: int = REPEATS) -> Numbers:
    """How long viewers wait. The twin is not asked: it would work on the same cores, for as long as it takes."""
    fleet, cpu, large, fleet_updates, large_updates = [], [], [], [], []
    for _ in range(repeats):
        page = viewer(browser)
        browser.start_tracing(page=page, categories=_TRACED)
        page.goto(f"{address}#/")
        page.wait_for_function(_counted("table.fleet tbody tr", PROFILES + 4))
        fleet.append(page.evaluate(_PAINTED))
        cpu.append(sum(task.cpu_ms for task in _main_thread(browser.stop_tracing())))
        fleet_updates.append(_longest_task(page, folder, "table.fleet"))
        page.context.close()
        page = viewer(browser)
        page.route("**/surface", lambda route: route.abort())
        page.goto(f"{address}#/p/{LARGE[0]}/{LARGE[1]}")
        page.wait_for_function(_DRAWN)
        large.append(page.evaluate(_PAINTED))
        expect(page.locator(".body.curves .band").first).to_be_attached()
        large_updates.append(_longest_task(page, folder, ".title"))
        page.context.close()
    middle = repeats // 2
    return Numbers(
        replicas=REPLICAS,
        profiles=PROFILES + 4,
        fleet_ms=round(sorted(fleet)[middle]),
        fleet_cpu_ms=round(sorted(cpu)[middle]),
        replicas_of_one_profile_ms=round(sorted(large)[middle]),
        fleet_update=_middle(fleet_updates),
        profile_update=_middle(large_updates),
    )


def _middle(tasks: list[Task]) -> Task:
    """The median of each number."""
    return Task(*(round(sorted(each)[len(each) // 2]) for each in zip(*map(astuple, tasks), strict=True)))


def _longest_task(page: Page, folder: Path, part: str) -> Task:
    """The longest while all replicas come to work at another load, until the page's part shows that."""
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=_TRACED)
    change_loads(folder)
    page.wait_for_function(f"() => !document.querySelector({part!r}).textContent.includes('BelowTheKnee')")
    page.wait_for_timeout(_SETTLED_MS)
    tasks = _main_thread(browser.stop_tracing())
    write_fleet(folder)
    return Task(max(task.ms for task in tasks), max(task.cpu_ms for task in tasks))


def _counted(selector: str, count: int) -> str:
    return f"() => document.querySelectorAll({selector!r}).length === {count}"


def _main_thread(trace: bytes) -> list[Task]:
    """What the page's main thread did."""
    events = json.loads(trace)["traceEvents"]
    main = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == _MAIN_THREAD]
    tasks = [e for e in events if e["name"] == _TASK and (e["pid"], e["tid"]) in main]
    return [Task(each.get("dur", 0) / 1e3, each.get("tdur", 0) / 1e3) for each in tasks]


def take_fleet(browser: Browser, address: str, images: Path) -> None:
    """The views of many profiles, and of one with many replicas."""
    for scheme in SCHEMES:
        page = viewer(browser, scheme=scheme)
        page.goto(f"{address}#/")
        expect(page.locator("table.fleet tbody tr")).to_have_count(PROFILES + 4)
        page.screenshot(path=images / f"fleet-{scheme}.png")
        page.context.close()
    page = viewer(browser, height=TALL)
    page.goto(f"{address}#/p/{LARGE[0]}/{LARGE[1]}")
    expect(page.locator(".chart .band").first).to_be_visible()
    page.locator(".body.curves").screenshot(path=images / "replicas.png")
    page.goto(f"{address}#/p/support/chat")
    page.locator(".body.production").screenshot(path=images / "production.png")
    page.context.close()


if __name__ == "__main__":
    sys.exit(main())
