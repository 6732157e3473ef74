"""Every example in docs/arguments.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kneekeeper.cli.main import main
from kneekeeper.domain.arguments import Refusal, rewrite

PAGE = (Path(__file__).parent.parent.parent / "docs" / "arguments.md").read_text()
REWRITES = re.findall(r"<!-- rewrite -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)


def rows(mark: str) -> list[list[str]]:
    table = PAGE.partition(f"<!-- {mark} -->\n")[2].partition("\n\n")[0].splitlines()[2:]
    return [
        [cell.strip().strip("`").replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table
    ]


def manifest(container: dict[str, Any]) -> str:
    pod = {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", **container}]}
    return yaml.safe_dump(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "m"}, "spec": {"template": {"spec": pod}}}
    )


@pytest.mark.parametrize("example", REWRITES)
def test_an_example_is_rewritten_as_shown(example, tmp_path, capfd):
    before, after = yaml.safe_load_all(example)
    file = tmp_path / "m.yaml"
    file.write_text(manifest(before))
    assert main(["patch", "--file", str(file), "--max-num-seqs=64", "--max-num-batched-tokens=4096"]) == 0
    [container] = yaml.safe_load(capfd.readouterr().out)["spec"]["template"]["spec"]["containers"]
    assert {key: container[key] for key in container if key not in ("name", "image")} == after


@pytest.mark.parametrize(("words", "reason", "why"), rows("refuse"))
def test_what_is_refused_has_the_shown_reason(words, reason, why):
    refusal = rewrite(yaml.safe_load(words), None, {}, max_num_seqs=64, max_num_batched_tokens=4096)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, bool(why)) == (reason, True)


@pytest.mark.parametrize(("arguments", "version", "found"), rows("check"))
def test_what_a_version_does_not_accept_is_found(arguments, version, found, tmp_path, capsys):
    file = tmp_path / "m.yaml"
    file.write_text(manifest({"args": ["--model=m", *arguments.split()]}))
    assert main(["check", "--file", str(file), "--engine-version", version]) == 1
    assert found in capsys.readouterr().out


def test_the_page_has_examples_of_every_sort():
    assert all((REWRITES, rows("refuse"), rows("check")))
