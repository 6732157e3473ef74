"""The mirror for base images is found in both formats of apt sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.apt_sources import AptSource, debian_mirror, parse_deb822, parse_one_line
from e2e.cluster.errors import ClusterError

DEB822 = """\
Types: deb
# an old snapshot
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://sources.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no
"""

ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb-src http://sources.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/key.gpg] http://mirror.example/debian bookworm main contrib # fast
"""


def test_stanzas_give_address_suites_and_components():
    assert list(parse_deb822(DEB822)) == [
        AptSource("http://mirror.example/debian", ("bookworm", "bookworm-updates"), ("main", "contrib"))
    ]


def test_lines_give_address_suite_and_components():
    assert list(parse_one_line(ONE_LINE)) == [
        AptSource("http://mirror.example/debian", ("bookworm",), ("main", "contrib"))
    ]


@pytest.mark.parametrize(("file", "text"), [("debian.sources", DEB822), ("debian.list", ONE_LINE)])
def test_the_mirror_of_the_suite_is_found(tmp_path, file, text):
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "a-tool.list").write_text("deb http://tool.example/apt tool main\n")
    (parts / file).write_text(text)
    assert debian_mirror("bookworm", tmp_path) == "http://mirror.example/debian"


def test_a_machine_without_the_suite_is_told_what_to_add(tmp_path):
    with pytest.raises(ClusterError, match="no apt source offers Debian bookworm"):
        debian_mirror("bookworm", tmp_path)


@given(st.text())
def test_no_text_breaks_the_parsers(text):
    for source in (*parse_deb822(text), *parse_one_line(text)):
        assert source.address
