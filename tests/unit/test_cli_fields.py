import argparse
from pathlib import Path

import pytest

from kneekeeper.api.serving_profile import Budget, Ladder
from kneekeeper.api.workload import ArrivalProcess, LengthDistribution, TokenLengths, Workload
from kneekeeper.cli.argument_types import duration
from kneekeeper.cli.ending import CannotError
from kneekeeper.cli.fields import api_key_of, bounds_of, fields_of, pairs, with_files, workload_of

DEFAULT = Workload(prompt_tokens=TokenLengths(mean=10, p99=20), output_tokens=TokenLengths(mean=10, p99=20))


def test_fields_have_the_names_and_the_forms_of_a_profile() -> None:
    budget = fields_of("--budget", "maxRestarts=5, startTimeout=90s", Budget)
    assert (budget.max_restarts, budget.start_timeout) == (5, 90.0)
    assert fields_of("--ladder", None, Ladder) == Ladder()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("restarts=2", "maxRestarts"),
        ("maxRestarts", "NAME=VALUE"),
        ("maxRestarts=99", "maxRestarts"),
        ("startTimeout=soon", "not a duration"),
        ("startTimeout=5", "not a duration"),
        ("maxRestarts=2,maxRestarts=3", "'maxRestarts' stands twice"),
    ],
)
def test_fields_that_do_not_fit_are_told(text: str, told: str) -> None:
    with pytest.raises(CannotError, match=f"--budget.*{told}"):
        fields_of("--budget", text, Budget)


@pytest.mark.parametrize(
    ("text", "sequences", "tokens"),
    [
        (None, (None, None), (None, None)),
        ("seqs=8..256,tokens=512..8192", (8, 256), (512, 8192)),
        ("seqs=8..", (8, None), (None, None)),
        ("maxNumBatchedTokens=..4096", (None, None), (None, 4096)),
    ],
)
def test_bounds_are_ranges_whose_ends_may_be_left_out(
    text: str | None, sequences: tuple[int | None, int | None], tokens: tuple[int | None, int | None]
) -> None:
    found = bounds_of(text)
    assert (found.max_num_seqs.min, found.max_num_seqs.max) == sequences
    assert (found.max_num_batched_tokens.min, found.max_num_batched_tokens.max) == tokens


@pytest.mark.parametrize(
    "text", ["seqs=8", "seqs=a..b", "seqs=9..8", "users=1..2", "seqs=0..8", "seqs=1..8,maxNumSeqs=2..9"]
)
def test_bounds_that_are_none_are_told(text: str) -> None:
    with pytest.raises(CannotError, match="--bounds"):
        bounds_of(text)


def test_a_workload_is_read_with_and_without_its_key(tmp_path: Path) -> None:
    section = "promptTokens: {distribution: Fixed, value: 7}\n"
    (tmp_path / "bare.yaml").write_text(section)
    (tmp_path / "keyed.yaml").write_text(f"workload:\n  {section}")
    bare, keyed = (workload_of(tmp_path / name, DEFAULT) for name in ("bare.yaml", "keyed.yaml"))
    assert bare == keyed
    assert bare.prompt_tokens is not None
    assert bare.prompt_tokens.value == 7
    assert workload_of(None, DEFAULT) is DEFAULT


@pytest.mark.parametrize(
    "text", ["promptTokens: 5", "[1]", "a: {", "surprise: 1", "prompts: {configMapRef: {name: p}}"]
)
def test_a_workload_that_is_none_is_told_with_its_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    with pytest.raises(CannotError, match=r"w\.yaml"):
        workload_of(path, DEFAULT)


def test_a_trace_and_prompts_are_declared_in_the_workload(tmp_path: Path) -> None:
    for name in ("trace.csv", "prompts.jsonl"):
        (tmp_path / name).write_text("")
    found = with_files(DEFAULT, tmp_path / "trace.csv", tmp_path / "prompts.jsonl")
    assert found.arrivals.process is ArrivalProcess.TRACE
    assert found.prompt_tokens is not None
    assert found.prompt_tokens.distribution is LengthDistribution.TRACE
    assert found.trace_ref is not None
    assert found.prompts is not None
    assert with_files(DEFAULT, None, None) == DEFAULT
    with pytest.raises(CannotError, match=r"--prompts.*none"):
        with_files(DEFAULT, None, tmp_path / "none")


def test_objects_of_a_cluster_cannot_be_named_in_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("prompts: {configMapRef: {name: p}}\n")
    with pytest.raises(CannotError, match="--prompts"):
        workload_of(path, DEFAULT)


def test_a_key_is_one_printable_line(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("secret\n")
    key = api_key_of(path)
    assert key is not None
    assert key.get_secret_value() == "secret"
    for text in ("", "two\nlines"):
        path.write_text(text)
        with pytest.raises(CannotError, match="one line"):
            api_key_of(path)


def test_durations_are_those_of_kubernetes() -> None:
    assert duration("12.5ms") == pytest.approx(0.0125)
    with pytest.raises(argparse.ArgumentTypeError, match="not a duration"):
        duration("12.5")


def test_pairs_need_a_name_and_a_value() -> None:
    assert pairs("--slo", "a=1, b=2,") == {"a": "1", "b": "2"}
    with pytest.raises(CannotError, match="--slo"):
        pairs("--slo", "a=")


def test_a_fault_of_the_whole_is_told_without_the_words_of_a_library() -> None:
    with pytest.raises(CannotError, match=r"^--bounds seqs: min must not be above max$"):
        bounds_of("seqs=9..8")


def test_what_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"a\0b")
    for name in ("binary.yaml", "absent.yaml"):
        with pytest.raises(CannotError) as told:
            workload_of(tmp_path / name, DEFAULT)
        assert "\n" not in str(told.value)
        assert "Errno" not in str(told.value)
