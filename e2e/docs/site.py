"""Hooks of mkdocs: what docs/ links to in the rest of the repository becomes a part of the site.

Pages link to examples and charts as they stand in the repository, so that the links also work there. On the site,
examples are one page, charts bring their README, and folders of like pages get a list of what is in them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs"
EXAMPLES_PAGE = "examples.md"
_LINK = re.compile(r"(?<=\]\()(?!https?://|#)([^)\s]+)(?=\))")
_LISTED = {
    "runbooks": ("Runbooks", "One page for each [alert](../metrics.md#alerts).", "alert", "means"),
    "adr": ("Decisions", "Why it is built as it is; read [the architecture](../architecture.md) first.", "", ""),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that do not stand in docs/."""
    files.append(File.generated(config, EXAMPLES_PAGE, content=examples_page()))
    for folder in _LISTED:
        files.append(File.generated(config, f"{folder}/index.md", content=list_page(folder)))
    for readme in sorted((ROOT / "charts").glob("*/README.md")):
        files.append(File.generated(config, readme.relative_to(ROOT).as_posix(), abs_src_path=str(readme)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links into the repository into links of the site."""
    here = page.file.src_uri
    return _LINK.sub(lambda link: site_link(link[1], here), markdown)


def site_link(link: str, page: str) -> str:
    """A link of `page`, a path on the site, that stands as in the repository, as the site has it."""
    target, mark, anchor = link.partition("#")
    folder = posixpath.dirname(page if page.startswith("charts/") else f"{DOCS}/{page}")
    path = posixpath.normpath(posixpath.join(folder, target))
    if path.startswith("examples"):
        name = posixpath.basename(path) if path.endswith(".yaml") else ""
        target, mark, anchor = _relative(EXAMPLES_PAGE, page), "#" if name else "", anchor_of(name)
    elif path.startswith(f"{DOCS}/") and target.endswith("/"):
        target = _relative(f"{path.removeprefix(f'{DOCS}/')}/index.md", page)
    elif path.startswith((f"{DOCS}/", "charts/")):
        target = _relative(path.removeprefix(f"{DOCS}/"), page)
    return f"{target}{mark}{anchor}"


def _relative(target: str, page: str) -> str:
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def anchor_of(example: str) -> str:
    """The place of an example on its page."""
    return example.replace(".", "-")


def examples_page() -> str:
    """Every file of examples/, with the comment at its top as text."""
    parts = ["# Examples\n\nThe files of `examples/`; tests hold each of them to what the operator accepts.\n"]
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        parts.append(f"## {path.name} {{#{anchor_of(path.name)}}}\n\n```yaml\n{path.read_text(encoding='utf-8')}```\n")
    return "\n".join(parts)


def list_page(folder: str) -> str:
    """The pages of a folder with their titles and, where asked for, the first paragraph below them."""
    title, about, first, second = _LISTED[folder]
    pages = [(path.name, path.read_text(encoding="utf-8")) for path in sorted((ROOT / DOCS / folder).glob("*.md"))]
    if not first:
        rows = [f"- [{_title(text)}]({name})" for name, text in pages]
    else:
        rows = [f"| {first} | {second} |", "| --- | --- |"]
        rows += [f"| [{_title(text)}]({name}) | {_first_paragraph(text)} |" for name, text in pages]
    return "\n".join([f"# {title}", "", about, "", *rows, ""])


def _title(text: str) -> str:
    return text.splitlines()[0].removeprefix("# ")


def _first_paragraph(text: str) -> str:
    paragraphs = [part for part in text.split("\n\n")[1:] if not part.startswith("#")]
    return " ".join(paragraphs[0].split()).replace("|", "\\|")
