"""The files that are mounted into the load agent."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from kneekeeper.api.offered_load import Empirical, FromTrace, Replay
from kneekeeper.api.sources import SourceState
from kneekeeper.api.stage import Limits, PromptSource
from kneekeeper.load.sources import PROMPTS, TRACE, SourceError, Sources, endless_prompts
from tests.unit.test_workload import spec

FEW = Limits(min_requests=1, max_requests=10, max_duration_s=1)
ANY = Empirical.model_validate({"bins": [{"low": 1, "high": 9, "weight": 1}]})
OF_TRACE = FromTrace(marginal=ANY, maximum=100)


def trace_file(folder: Path, requests: int = 50, bad_line: str = "") -> Path:
    path = folder / "monday.jsonl"
    rows = [{"timestamp_s": at, "prompt_tokens": 10 + at, "output_tokens": 1 + at} for at in range(requests)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + bad_line, encoding="utf-8")
    return path


def prompts_file(folder: Path, count: int = 3) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"text": f"prompt {at}"}) + "\n" for at in range(count)), encoding="utf-8")
    return path


def test_a_report_tells_what_the_files_hold(tmp_path):
    sources = Sources.from_environment({TRACE: str(trace_file(tmp_path)), PROMPTS: str(prompts_file(tmp_path))})
    report = sources.read_report()
    assert report.state is SourceState.READY
    assert report.trace is not None
    assert (report.trace.requests, report.trace.rate) == (50, 1.0)
    assert report.prompts is not None
    assert report.prompts.prompts == 3


def test_without_files_there_is_nothing_to_tell():
    report = Sources.from_environment({}).read_report()
    assert (report.state, report.trace, report.prompts) == (SourceState.READY, None, None)


def test_a_folder_with_one_file_is_as_good_as_the_file(tmp_path):
    trace_file(tmp_path)
    (tmp_path / "..data").mkdir()
    (tmp_path / ".hidden").write_text("", encoding="utf-8")
    report = Sources(trace=tmp_path).read_report()
    assert report.trace is not None
    prompts_file(tmp_path)
    report = Sources(trace=tmp_path).read_report()
    assert report.state is SourceState.FAILED
    assert "holds 2 files; name one by its key" in report.message


def test_a_fault_names_file_line_and_column(tmp_path):
    report = Sources(trace=trace_file(tmp_path, bad_line='{"timestamp_s": 99, "prompt_tokens": 1}\n')).read_report()
    assert report.state is SourceState.FAILED
    assert report.message == "monday.jsonl: line 51, column 1: output_tokens is missing."


@pytest.mark.parametrize(
    ("content", "why"), [(b"\x1f\x8b\x08", "line 1, column 2: it is not UTF-8 text; unpack it"), (b"", "no request")]
)
def test_a_file_that_is_no_text_or_empty_is_a_fault(tmp_path, content, why):
    (tmp_path / "trace.gz").write_bytes(content)
    report = Sources(trace=tmp_path).read_report()
    assert why in report.message


def test_a_file_that_is_not_there_is_a_fault(tmp_path):
    report = Sources(trace=tmp_path / "gone.csv").read_report()
    assert "gone.csv cannot be read: No such file or directory; check its reference" in report.message


async def test_the_first_report_starts_reading_and_a_later_one_has_it(tmp_path):
    sources = Sources(trace=trace_file(tmp_path))
    first = sources.report()
    assert first.state is SourceState.READING
    assert sources._reading is not None
    await sources._reading
    assert sources.report().trace is not None


def test_stages_see_different_windows_of_a_trace_and_the_same_stage_the_same(tmp_path):
    sources = Sources(trace=trace_file(tmp_path, requests=500))

    def first_of(seed: int) -> int:
        wanted = spec(arrivals=Replay(rate=5), prompt_tokens=OF_TRACE, output_tokens=OF_TRACE, limits=FEW, seed=seed)
        window = sources.read_inputs(wanted).trace
        assert window is not None
        assert window.at_s.tolist() == list(range(10))
        return int(window.prompt_tokens[0])

    firsts = [first_of(seed) for seed in range(12)]
    assert len(set(firsts)) > 6
    assert firsts == [first_of(seed) for seed in range(12)]


@pytest.mark.parametrize("asked", [{"arrivals": Replay(rate=5)}, {"prompts": PromptSource.MOUNTED}])
def test_a_stage_that_asks_for_a_file_that_is_not_mounted_is_refused_with_the_next_step(asked):
    with pytest.raises(SourceError, match=r"none is mounted; declare it in spec\.workload"):
        Sources().read_inputs(spec(**asked))


def test_prompts_go_round_and_round_and_each_round_has_a_number(tmp_path):
    taken = list(itertools.islice(endless_prompts(prompts_file(tmp_path), 2), 5))
    assert [(turn, prompt.content) for turn, prompt in taken] == [
        (0, "prompt 2"),
        (1, "prompt 0"),
        (1, "prompt 1"),
        (1, "prompt 2"),
        (2, "prompt 0"),
    ]
