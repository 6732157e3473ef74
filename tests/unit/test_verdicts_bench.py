"""The quick form of `make bench-verdicts`, within bounds that a broken rule misses by far."""

from __future__ import annotations

import json

import pytest

from benchmarks import verdicts
from benchmarks.verdicts_margin import MarginRow


@pytest.fixture(scope="module")
def printed() -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("sys.argv", ["verdicts", "--stages", "40"])
        patch.setattr("builtins.print", lambda *words, **_: lines.append(" ".join(map(str, words))))
        verdicts.main()
    return lines


def test_the_last_line_is_one_object_with_the_promised_keys(printed):
    found = json.loads(printed[-1])
    assert {"false_pass", "power", "median_requests", "conditions"} <= found.keys()
    assert found["edge_stages"] == 40 * len(verdicts.QUICK) == 40 * len(found["conditions"])


def test_what_does_not_deserve_it_seldom_passes(printed):
    """A rule that calls what is undecided a PASS lets a third pass; the mean in place of the P99, nearly all."""
    found = json.loads(printed[-1])
    assert found["false_pass"] <= 0.10
    assert all(one["false_pass"] <= 0.15 for one in found["conditions"])


def test_what_deserves_it_usually_passes(printed):
    found = json.loads(printed[-1])
    assert found["power"] >= 0.55
    assert found["conditions"][-1]["power"] >= 0.8
    assert 300 < found["median_requests"] <= 3000


def test_a_fast_server_that_fails_requests_does_not_pass(printed):
    assert json.loads(printed[-1])["false_pass_failing"] == 0.0


def test_the_conditions_are_what_they_claim_to_be(printed):
    """At the offered rate more than the allowed share miss at the edge, and fewer in the easy stages."""
    for one in json.loads(printed[-1])["conditions"]:
        assert one["easy_misses"] < 0.01 < one["edge_misses"]


def test_the_least_margin_is_the_one_from_which_on_few_pass():
    assert MarginRow("small", "none", (0.6, 0.2, 0.02, 0.0)).least == 1.2
    assert MarginRow("small", "none", (0.0, 0.2, 0.02, 0.0)).least == 1.2
    assert MarginRow("small", "none", (0.6, 0.2, 0.2, 0.1)).least is None


def test_the_page_says_where_the_margin_is_enough_and_where_not(printed):
    found = json.loads(printed[-1])
    results = [verdicts.ConditionResult(**one) for one in found["conditions"]]
    summary = verdicts.Summary(**{name: found[name] for name in verdicts.Summary.__dataclass_fields__})
    margins = [MarginRow("small", "none", (0.6, 0.2, 0.02, 0.0)), MarginRow("large", "slower", (1.0, 0.6, 0.2, 0.0))]
    page = "\n".join(verdicts.page(summary, results, margins, 40))
    assert "1.2 is enough for: none (small)." in page
    assert "not enough for: slower (large)." in page
    assert page.count("\n| large | P99 TTFT") == 1
    assert "margin" not in "\n".join(verdicts.page(summary, results, [], 0))
