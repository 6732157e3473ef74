"""What the pages tell to type and to write is understood: commands by their parsers, objects by the API.

Commands that need neither cluster nor GPU are run elsewhere (`tests/local/test_documented_commands.py`); here each one
is held to what it names: options, chart values, fields of status, annotations, files, targets of make.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.binaries import HELM, ensure_built
from kneekeeper.api.crds import KINDS, Kind, definition
from kneekeeper.api.serving_profile import ServingProfile, ServingProfileSpec
from kneekeeper.cli.main import parser_of
from kneekeeper.domain.names import ANNOTATION_APPROVE, ANNOTATION_RETUNE
from kneekeeper.domain.plan.acceptance import spec_problem
from tests.contract.chart_rendering import CHART, NEWEST_KUBERNETES, of_kind, render
from tests.contract.test_crds import shape_error

ROOT = Path(__file__).parents[2]
PAGES = sorted({*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "charts").glob("*/README.md")})
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`((?:kneekeeper|make) [^`\n]+)`(?!`)")
SHELL = ("", "sh", "bash")
PROGRAMS = ("kneekeeper", "kubectl", "helm", "make", "python", "pip", "docker")
FOREIGN = ("gitops.md", "arguments.md")
"""Pages with objects of other projects, or with parts of pods."""
PROFILE: dict[str, Any] = {
    "targetRef": {"kind": "Deployment", "name": "chat"},
    "slo": {"p99TTFT": "1s", "p99TPOT": "50ms"},
    "workload": {
        "promptTokens": {"distribution": "Fixed", "value": 100},
        "outputTokens": {"distribution": "Fixed", "value": 100},
    },
}
RESTS = [{name: PROFILE[name] for name in PROFILE if name != left_out} for left_out in ("", "workload", "slo")]
"""What may stand beside the fields that a page shows: a profile may learn its workload, or promise no latency."""
FIELDS = {str(field.alias) for field in ServingProfileSpec.model_fields.values()}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {' '.join(self.text.split())[:60]}"


def blocks(*languages: str) -> list[Block]:
    found = [
        Block(page, language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
        for page in PAGES
        for indent, language, text in FENCE.findall(page.read_text(encoding="utf-8"))
    ]
    return [block for block in found if block.language in languages]


def commands() -> Iterator[tuple[str, str]]:
    """Page and command, whole lines of shell blocks."""
    for block in blocks(*SHELL):
        for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
            known = line.split(" ", 1)[0] in PROGRAMS
            assert known or block.language == "" or not line.strip(), f"{block}: {line} is not looked at"
            if known:
                yield block.page.name, line


def inline_commands() -> list[str]:
    return sorted({line for page in PAGES for line in INLINE.findall(page.read_text(encoding="utf-8"))})


def words_of(command: str) -> list[str]:
    """Without what a shell takes away; placeholders are words of their own."""
    return shlex.split(re.sub(r"<([^<>]*)>", r"placeholder", command).split(" > ")[0], comments=True)


def parser_for(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of the innermost command that the words name, and what is left of them."""
    parser = parser_of("kneekeeper")
    while words:
        verbs = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
        if verbs is None or words[0] not in verbs.choices:
            break
        parser, words = verbs.choices[words[0]], words[1:]
    return parser, words


def check_kneekeeper(words: list[str]) -> None:
    if any("[" in word for word in words):
        check_flags([word.strip("[]") for word in words])
    else:
        parser_of("kneekeeper").parse_args(words)


def check_flags(words: list[str]) -> None:
    """Of a command that is not told in full: it exists, and so do its options."""
    parser, left = parser_for(words)
    assert left != words, f"there is no command {words[0]}"
    flags = {word.partition("=")[0] for word in left if word.startswith("--") and word != "--"}
    assert flags <= {option for action in parser._actions for option in action.option_strings}


def check_helm(words: list[str]) -> None:
    verb, *rest = words
    assert verb in ("install", "upgrade", "rollback", "uninstall")
    rest = [word for word in rest if word not in ("--install", "--reset-then-reuse-values", "--create-namespace")]
    if verb in ("install", "upgrade"):
        helm = str(ensure_built(HELM) / "helm")
        done = subprocess.run(
            [helm, "template", "--kube-version", NEWEST_KUBERNETES, *rest],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def check_kubectl(words: list[str]) -> None:
    words = words[2:] if words[0] in ("-n", "--namespace") else words
    verb, *rest = words
    match verb:
        case "apply":
            assert (ROOT / rest[rest.index("-f") + 1]).is_file()
        case "get" | "describe" | "wait":
            kind = kind_of(rest[0])
            for path in re.findall(r"jsonpath=\{(.*?)\}", " ".join(rest)):
                assert_field(kind, path)
        case "annotate":
            kind_of(rest[0])
            (key,) = (word.partition("=")[0] for word in rest if "/" in word)
            assert key in (ANNOTATION_APPROVE, ANNOTATION_RETUNE)
        case "port-forward":
            names = {
                item["metadata"]["name"] for item in of_kind(render(CHART, {"dashboard": {"enabled": True}}), "Service")
            }
            assert rest[0].replace("service/", "release-") in names
        case _:
            raise AssertionError(f"kubectl {verb} is not looked at")


def kind_of(resource: str) -> Kind:
    """The first of what kubectl is asked for that is ours."""
    names = [name.partition("/")[0] for name in resource.split(",")]
    return next(kind for kind in KINDS if kind.short_name in names or kind.plural in names)


def assert_field(kind: Kind, path: str) -> None:
    node = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path.strip(".").split("."):
        assert name in node["properties"], path
        node = node["properties"][name]


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert words[0] in targets


def check_python(words: list[str]) -> None:
    assert words[0] == "-m"
    assert importlib.util.find_spec(words[1]) is not None


def check_files(words: list[str]) -> None:
    """Of pip and docker: what they read exists."""
    for flag, name in pairwise(words):
        assert flag != "-r" or (ROOT / name).is_file()
    if words[0] in ("build", "push"):
        assert (ROOT / "Dockerfile").is_file()
        version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
        assert any(word.endswith(f"kneekeeper:{version}") for word in words), "the chart asks for its own version"


CHECKS = {
    "kneekeeper": check_kneekeeper,
    "kubectl": check_kubectl,
    "helm": check_helm,
    "make": check_make,
    "python": check_python,
    "pip": check_files,
    "docker": check_files,
}


def test_the_pages_have_commands_and_objects():
    assert len(list(commands())) > 40
    assert len(blocks("yaml")) > 20
    assert len(inline_commands()) > 10


@pytest.mark.parametrize("command", sorted({line for _, line in commands()}))
def test_a_documented_command_is_one_that_its_program_takes(command):
    program, *words = words_of(command)
    CHECKS[program](words)


@pytest.mark.parametrize("command", inline_commands())
def test_a_command_in_the_text_exists_with_its_options(command):
    program, *words = words_of(command)
    if program == "make":
        check_make(words)
    else:
        check_flags(words)


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_documented_object_is_one_that_the_operator_acts_on(block):
    for document in yaml.safe_load_all(block.text):
        kind = next((kind for kind in KINDS if kind.name == document.get("kind")), None)
        spec = document["spec"] if set(document) == {"spec"} else document
        if kind is not None:
            assert shape_error(kind, document["spec"]) is None
            if kind.resource is ServingProfile:
                assert spec_problem(ServingProfileSpec.model_validate(document["spec"])) is None
        elif set(spec) <= FIELDS:
            assert shape_error(KINDS[0], PROFILE | spec) is None
            assert any(spec_problem(ServingProfileSpec.model_validate(rest | spec)) is None for rest in RESTS)
        else:
            assert block.page.name in FOREIGN, f"{sorted(set(spec) - FIELDS)} are no fields of a profile"


def test_values_of_a_recommendation_are_never_kept_as_a_file_for_helm():
    """Helm replaces a list as a whole: a model of the production stack would lose all its other values."""
    for page in (*PAGES, *sorted((ROOT / "examples").glob("*.yaml"))):
        assert not re.search(r"helmValues\}'\s*>", page.read_text(encoding="utf-8")), page
