"""The site of docs/ builds without a warning, works without any other server, and holds every page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

from e2e.docs.__main__ import written
from e2e.docs.reason_words import told
from e2e.docs.site import ROOT, site_link
from kneekeeper.api.tuning_run import RunOutcome
from kneekeeper.domain.arguments.refusal import RefusalReason
from kneekeeper.domain.plan.conditions import ConditionType
from kneekeeper.domain.startup_failures import FailureKind

DOCS = ROOT / "docs"
LISTED = ("runbooks", "adr")
"""Folders whose pages are on a page of their own."""
FETCHED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(?P<src>[^\"> ]+)|<link\b(?P<link>[^>]*)>")
NAMED_REASON = re.compile(rf"`(?:(?:{'|'.join(ConditionType)})=(?:True|False|Unknown)|{'|'.join(RunOutcome)})/(\w+)`")
NOT_FETCHED = ("canonical", "prev", "next", "edit")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_it_builds_without_a_warning(site):
    assert (site / "index.html").is_file()


def test_nothing_is_fetched_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        for found in FETCHED.finditer(page.read_text(encoding="utf-8")):
            tag = found["src"] or found["link"]
            if not any(f'rel="{rel}"' in tag or f"rel={rel}" in tag for rel in NOT_FETCHED):
                assert "//" not in tag, f"{page.name}: {found[0]}"
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//|@import", style.read_text(encoding="utf-8")), style


def test_every_page_is_in_the_navigation():
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)["nav"]
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    missing = {page for page in pages if page.partition("/")[0] not in LISTED} - set(_leaves(nav))
    assert not missing, f"add to nav in mkdocs.yml: {', '.join(sorted(missing))}"


def _leaves(node: object) -> list[str]:
    if isinstance(node, str):
        return [node]
    children = node.values() if isinstance(node, dict) else node
    assert isinstance(children, list) or isinstance(node, dict)
    return [leaf for child in children for leaf in _leaves(child)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("link", "page", "on_the_site"),
    [
        ("../examples/helm.yaml", "gitops.md", "examples.md#helm-yaml"),
        ("../../examples/helm.yaml", "how-to/index.md", "../examples.md#helm-yaml"),
        ("../../charts/kneekeeper/README.md", "operate/limits.md", "../charts/kneekeeper/README.md"),
        ("../../docs/metrics.md", "charts/kneekeeper/README.md", "../../metrics.md"),
        ("runbooks/", "metrics.md", "runbooks/index.md"),
        ("livetune.md#when-it-does-not-work", "failure_modes.md", "livetune.md#when-it-does-not-work"),
    ],
)
def test_links_into_the_repository_become_links_of_the_site(link, page, on_the_site):
    assert site_link(link, page) == on_the_site


@pytest.mark.parametrize("name", ["servingprofile.md", "tuningrun.md", "conditions.md"])
def test_a_page_of_reference_is_what_the_code_says(name):
    path = DOCS / "reference" / name
    assert path.read_text(encoding="utf-8") == written()[path], "run make reference"


def test_every_reason_that_a_page_names_is_one_that_the_code_gives():
    given = {one.reason for one in told()} | {*FailureKind, *RefusalReason}
    patterns = [re.compile(re.escape(reason).replace("…", r"\w+")) for reason in given]
    named = {
        (page.name, reason)
        for page in DOCS.rglob("*.md")
        for reason in NAMED_REASON.findall(page.read_text(encoding="utf-8"))
    }
    assert len(named) > 30
    assert {(page, reason) for page, reason in named if not any(one.fullmatch(reason) for one in patterns)} == set()


@pytest.mark.parametrize("path", sorted((DOCS / "images" / "concepts").glob("*.svg")), ids=lambda path: path.stem)
def test_a_figure_stands_alone_has_its_numbers_and_is_shown(path):
    page = (DOCS / "concepts.md").read_text(encoding="utf-8")
    caption = re.search(
        f"images/concepts/{path.name}\\).*?<!-- make figures: {path.stem} -->\n\n\\*(.+?)\\*\n", page, re.DOTALL
    )
    assert caption
    assert re.search(r"\d", caption[1])
    text = path.read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "href" not in text
    assert "<script" not in text


def test_the_readme_starts_as_the_site_does():
    start = (DOCS / "start.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("## Install it", 1)[1].split("\n## ", 1)[0]
    commands = re.findall(r"```\w*\n(.*?)```", section, re.DOTALL)
    assert commands
    for line in "".join(commands).splitlines():
        assert line in start.splitlines()
