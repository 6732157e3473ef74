"""What is shipped: pinned by hashes, listed, free to be given away, and built without a lapse. All offline."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"^([a-z0-9-]+(?:\[[a-z,]+\])?)==(\S+)((?: \\\n {4}--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
RUNTIME = {name: version for name, version, _ in PINNED.findall((ROOT / "requirements/runtime.txt").read_text())}

PERMISSIVE = re.compile(
    r"\b(0BSD|Apache|BSD|CC0|CNRI|HPND|ISC|MIT|MPL|Mozilla Public License|PSF|Python Software Foundation|Unlicense"
    r"|Zlib)\b",
    re.IGNORECASE,
)
COPYLEFT = re.compile(r"\b(A?GPL|L?GPL|GNU|SSPL|BUSL|Commons Clause)\b", re.IGNORECASE)


def licence_of(name: str) -> str:
    """As short as the distribution tells it: the expression, its classifiers, or the first line of its text."""
    told = distribution(name.partition("[")[0]).metadata.json
    expression, classifiers, text = (told.get(key) or "" for key in ("license_expression", "classifier", "license"))
    of_licences = [each for each in classifiers if each.startswith("License ::")]
    return str(expression or "; ".join(of_licences) or str(text).partition("\n")[0])


def test_every_line_of_the_requirements_is_a_pin_with_hashes_or_a_comment():
    for file in ("runtime.txt", "dev.txt", "pip.txt", "uv.txt"):
        text = (ROOT / "requirements" / file).read_text()
        left = re.sub(r"^ *#.*$", "", PINNED.sub("", re.sub(r" ; [^\\\n]+", "", text)), flags=re.MULTILINE)
        assert not left.strip(), left
    assert len(RUNTIME) > 20


@pytest.mark.parametrize("name", RUNTIME)
def test_a_shipped_dependency_has_a_licence_that_asks_for_nothing_of_its_users(name: str):
    licence = licence_of(name)
    assert PERMISSIVE.search(licence), f"{name}: {licence or 'none is told'}"
    assert not COPYLEFT.search(licence), f"{name}: {licence}"


def test_what_is_tested_is_what_is_shipped():
    installed = {name: distribution(name.partition("[")[0]).version for name in RUNTIME}
    assert installed == RUNTIME


def test_the_bill_of_materials_names_all_that_is_shipped(tmp_path: Path):
    bill = tmp_path / "sbom.json"
    told = ("requirements", "requirements/runtime.txt", "--of", "JSON", "-o", str(bill))
    subprocess.run([Path(sys.executable).with_name("cyclonedx-py"), *told], cwd=ROOT, check=True, capture_output=True)
    components = {each["name"]: each["version"] for each in json.loads(bill.read_text())["components"]}
    assert components == {name.partition("[")[0]: version for name, version in RUNTIME.items()}


def test_the_dockerfile_has_no_lapse():
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--no-color", "Dockerfile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
