"""What is made for a cluster is told here in flags: every field and every place that a run or a probe may name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kneekeeper
from kneekeeper.local.wording import for_probe, for_tune

PACKAGE = Path(kneekeeper.__file__).parent
DECIDE = sorted((PACKAGE / "domain").glob("*.py")) + sorted((PACKAGE / "domain" / "plan").glob("run*.py"))
LOAD = [PACKAGE / "load" / f"{name}.py" for name in ("ending", "evidence", "sources", "stage_runner")]
ACCEPT = [PACKAGE / "domain" / "plan" / "acceptance.py"]

NOT_WITHOUT_A_CLUSTER = (
    r"spec\.(suspend|schedules|targetRef|metrics|update|retune|objective)",
    r"spec\.probe\.(window|allow)",
    r"spec\.slo\.availabilityPercent",
    r"spec\.endpoint\.(serverName|caBundleRef)",
    r"spec\.parameters\.kneeElasticityPercent",
    r"Make room for all|scaled down|spare GPU|^… Then annotate",
    r"not heard from the operator|could not reach the load agent",
    r"agent at |of .* load agents|helper",
    r"\.\{0,120\}",  # of the log, not for people
)
"""What neither command can come to: a workload, HTTPS, a window, production's metrics, several agents, live tuning."""

CLUSTER_WORDS = re.compile(r"\bspec\.|\bload agent|\bthe agent|\bnode\b|\boperator\b|\bannotate|\bpod's log")


def sentences(files: list[Path]) -> Iterator[str]:
    """All texts of the code but docstrings and names; what is filled in later is `…`."""
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        docstrings = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        parts = {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values}
        for node in ast.walk(tree):
            if id(node) in docstrings | parts:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                told = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                yield re.sub(r"spec\.slo\.(p99)?…", "spec.slo.p99TPOT", told)


def cluster_sentences() -> list[str]:
    everything = {each for each in sentences([*DECIDE, *LOAD, *ACCEPT]) if CLUSTER_WORDS.search(each)}
    return sorted(each for each in everything if not any(re.search(no, each) for no in NOT_WITHOUT_A_CLUSTER))


def test_there_are_sentences_to_translate() -> None:
    assert len(cluster_sentences()) > 15


@pytest.mark.parametrize("sentence", cluster_sentences())
def test_no_sentence_of_a_cluster_is_told_here(sentence: str) -> None:
    for told in (for_tune(sentence), for_probe(sentence)):
        assert not CLUSTER_WORDS.search(told), told


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("raise spec.probe.budget.maxRestarts.", "raise --budget maxRestarts."),
        ("spec.probe.ladder.maxConcurrency was reached.", "--ladder maxConcurrency was reached."),
        ("spec.parameters.maxNumBatchedTokens.max 64 is below 512", "--bounds maxNumBatchedTokens.max 64 is below 512"),
        ("Widen spec.parameters or raise", "Widen --bounds or raise"),
        ("Give prompts of production in spec.workload.prompts.", "Give prompts of production in --prompts."),
        ("does not act on spec.workload.classes.", "does not act on classes in the file of --workload."),
        ("raise the targets in spec.slo.", "raise --ttft, --tpot or --e2e."),
        (
            "Client too slow. Give the load agent more CPU, or a node that is less busy.",
            "Client too slow. Stop what else works on this machine, or lower --ladder maxConcurrency.",
        ),
        ("Nothing to translate.", "Nothing to translate."),
    ],
)
def test_tune_names_its_own_flags(message: str, told: str) -> None:
    assert for_tune(message) == told


def test_probe_names_its_own_flags() -> None:
    told = for_probe("Client busy: it used 90% of a core, 80% are allowed. Spread the load over more agents.")
    assert told.endswith("It is at its limit: offer less by --rate, --users or --ladder.")
