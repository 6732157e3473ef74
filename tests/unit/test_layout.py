"""What the layout of the repository promises."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_source_root_is_no_package_since_it_would_hide_the_standard_librarys_operator():
    assert (ROOT / "operator" / "kneekeeper" / "__init__.py").is_file()
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_every_package_says_what_may_be_in_it():
    for init in (ROOT / "operator" / "kneekeeper").rglob("__init__.py"):
        assert init.read_text().startswith('"""'), init
