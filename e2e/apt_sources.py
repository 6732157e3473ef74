"""Where this machine gets its Debian packages from: read from its apt sources, since the project names no mirror."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

_APT = Path("/etc/apt")


@dataclass(frozen=True)
class AptSource:
    """One source of binary packages: an address with the suites and components that are taken from it."""

    address: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


def debian_mirror(suite: str, folder: Path = _APT) -> str:
    """The address of the first source that offers `main` of `suite`.

    Raises `ClusterError` where there is none.
    """
    for source in read_sources(folder):
        if suite in source.suites and "main" in source.components:
            return source.address
    raise ClusterError(f"no apt source offers Debian {suite}; add one to /etc/apt/sources.list.d to build images")


def read_sources(folder: Path) -> Iterator[AptSource]:
    """The sources of an apt configuration folder, in both formats that apt reads."""
    lists = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.list"))]
    for path in lists:
        if path.exists():
            yield from parse_one_line(path.read_text(encoding="utf-8"))
    for path in sorted((folder / "sources.list.d").glob("*.sources")):
        yield from parse_deb822(path.read_text(encoding="utf-8"))


def parse_one_line(text: str) -> Iterator[AptSource]:
    """The sources of a `.list` file: `deb [options] address suite component…`."""
    for line in text.splitlines():
        words = re.sub(r"\[[^]]*\]", "", line.partition("#")[0]).split()
        if len(words) >= 3 and words[0] == "deb":
            yield AptSource(words[1], (words[2],), tuple(words[3:]))


def parse_deb822(text: str) -> Iterator[AptSource]:
    """The sources of a `.sources` file: stanzas of `Field: words`, continued by indented lines."""
    without_comments = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", without_comments):
        fields = {
            name.lower(): tuple(value.split())
            for name, value in re.findall(r"^(\S+?):((?:.*)(?:\n[ \t]+.*)*)", stanza, re.MULTILINE)
        }
        if "deb" in fields.get("types", ()) and fields.get("enabled", ("yes",)) == ("yes",):
            for address in fields.get("uris", ()):
                yield AptSource(address, fields.get("suites", ()), fields.get("components", ()))
