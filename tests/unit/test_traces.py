from __future__ import annotations

import contextlib
import csv
import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kneekeeper.domain.trace_summary import summarise_trace
from kneekeeper.domain.traces import TraceError, TraceRequest, read_trace, take_window

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURST_GPT = '''Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,abc,1.5,ChatGPT,472,18,490,Conversation log
45,"a, ""b""",2,GPT-4,1087,0,1087,API log
118.5,,3,ChatGPT,417,276,693,Conversation log
'''
MOONCAKE = """{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 3052, "input_length": 7319, "output_length": 490, "hash_ids": [0, 14]}
"""
PLAIN = """{"timestamp_s": 10, "prompt_tokens": 12, "output_tokens": 30}

{"timestamp_s": 10.5, "prompt_tokens": 1, "output_tokens": 2, "note": "other keys do not matter"}
"""


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AZURE_2023, [(0, 374, 44), (4.314579, 396, 109), (4.541877, 879, 55)]),
        (AZURE_2024, [(0, 2162, 5), (0.007405, 2399, 6)]),
        (BURST_GPT, [(0, 472, 18), (40, 1087, 0), (113.5, 417, 276)]),
        (MOONCAKE, [(0, 6758, 500), (3.052, 7319, 490)]),
        (PLAIN, [(0, 12, 30), (0.5, 1, 2)]),
    ],
    ids=["azure-2023", "azure-2024", "burstgpt", "mooncake", "plain"],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_each_format_is_told_by_its_first_line(text, expected, ending, mark):
    read = list(read_trace(lines(mark + text.replace("\n", ending))))
    assert [request[1:] for request in read] == [request[1:] for request in expected]
    assert [request.at_s for request in read] == pytest.approx([at for at, *_ in expected], abs=1e-6)


@pytest.mark.parametrize(
    ("text", "line", "column", "why"),
    [
        ("", 1, 1, "no request"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", 1, 1, "no request"),
        ("time,tokens\n1,2\n", 1, 1, "neither Azure's columns"),
        ('{"time": 1}\n', 1, 1, "neither a plain trace"),
        (AZURE_2023 + "2023-11-16 18:15:52,9,many\n", 5, 23, "generatedtokens is 'many'"),
        (AZURE_2023 + "2023-11-16 18:15:52,-9,1\n", 5, 21, "contexttokens is '-9'"),
        (AZURE_2023 + "yesterday,9,1\n", 5, 1, "timestamp is 'yesterday'"),
        (AZURE_2023 + "2023-11-16 18:15:52,9\n", 5, 22, "ends after 2 of 3 fields"),
        (AZURE_2023 + "2023-11-16 18:15:00,9,1\n", 5, 1, "sort the file"),
        (BURST_GPT + 'x,"a,1\n', 5, 3, "quotes do not match"),
        (BURST_GPT + "200,a,1,m,1e3,5,5,l\n", 5, 11, "request tokens is '1e3'"),
        (BURST_GPT + "nan,a,1,m,3,5,5,l\n", 5, 1, "timestamp is 'nan'"),
        (PLAIN + '{"timestamp_s": 11, "prompt_tokens": 1}\n', 4, 1, "output_tokens is missing"),
        (PLAIN + '{"timestamp_s": 11, "prompt_tokens": 1.5, "output_tokens": 1}\n', 4, 21, "prompt_tokens is not"),
        (PLAIN + '{"timestamp_s": "11", "prompt_tokens": 1, "output_tokens": 1}\n', 4, 2, "timestamp_s is not"),
        (PLAIN + '{"timestamp_s": 11, "prompt_tokens": true, "output_tokens": 1}\n', 4, 21, "prompt_tokens is not"),
        (PLAIN + '{"timestamp_s": 11,\n', 4, 20, "not JSON"),
        (PLAIN + "[1]\n", 4, 1, "not a JSON object"),
    ],
)
def test_an_error_names_line_and_column(text, line, column, why):
    with pytest.raises(TraceError, match=why) as caught:
        list(read_trace(lines(text)))
    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"line {line}, column {column}: " in str(caught.value)


@given(st.lists(st.text(max_size=40), max_size=8), st.sampled_from(["", AZURE_2023, BURST_GPT, MOONCAKE, PLAIN]))
def test_garbage_is_a_trace_error_and_nothing_else(garbage, before):
    with contextlib.suppress(TraceError):
        for request in read_trace([*lines(before), *garbage]):
            assert request.at_s >= 0


REQUESTS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**4)), min_size=1, max_size=50
)


@given(REQUESTS)
def test_the_same_requests_are_read_from_every_format(drawn):
    milliseconds = np.cumsum([gap for gap, *_ in drawn]).tolist()
    rows = [(at, *rest) for at, (_, *rest) in zip(milliseconds, drawn, strict=True)]
    start = datetime(2024, 5, 10, tzinfo=UTC)
    azure, burst = io.StringIO(), io.StringIO()
    csv.writer(azure).writerows(
        [("TIMESTAMP", "ContextTokens", "GeneratedTokens")]
        + [(start + timedelta(milliseconds=at), p, o) for at, p, o in rows]
    )
    csv.writer(burst).writerows(
        [("Timestamp", "Model", "Request tokens", "Response tokens")] + [(at / 1000, "m", p, o) for at, p, o in rows]
    )
    texts = [
        azure.getvalue(),
        burst.getvalue(),
        "".join(json.dumps({"timestamp": at, "input_length": p, "output_length": o}) + "\n" for at, p, o in rows),
        "".join(
            json.dumps({"timestamp_s": at / 1000, "prompt_tokens": p, "output_tokens": o}) + "\n" for at, p, o in rows
        ),
    ]
    expected = [TraceRequest((at - rows[0][0]) / 1000, p, o) for at, p, o in rows]
    for text in texts:
        read = list(read_trace(lines(text)))
        assert [request[1:] for request in read] == [request[1:] for request in expected]
        assert np.allclose([request.at_s for request in read], [request.at_s for request in expected], atol=1e-6)


@given(REQUESTS)
def test_a_summary_counts_every_request_and_bounds_every_length(drawn):
    at_s = np.cumsum([gap for gap, *_ in drawn]) / 1000
    requests = [TraceRequest(float(at), p, o) for at, (_, p, o) in zip(at_s, drawn, strict=True)]
    served = [request for request in requests if not request.failed]
    if not served:
        with pytest.raises(TraceError, match="all its requests failed"):
            summarise_trace(requests)
        return
    report = summarise_trace(requests)
    assert (report.requests, report.left_out) == (len(served), len(requests) - len(served))
    assert report.duration_s == pytest.approx(served[-1].at_s - served[0].at_s)
    for lengths, tokens in (
        (report.prompt_tokens, [request.prompt_tokens for request in served]),
        (report.output_tokens, [request.output_tokens for request in served]),
    ):
        assert sum(part.weight for part in lengths.bins) == len(served)
        assert len(lengths.bins) <= 96
        assert min(part.low for part in lengths.bins) == min(tokens)
        assert max(part.high for part in lengths.bins) == max(tokens)


def test_the_variation_of_the_gaps_is_that_of_the_process_they_came_from():
    rng = np.random.default_rng(1)
    at_s = np.cumsum(rng.gamma(0.25, 4.0, 50_000))
    report = summarise_trace(TraceRequest(float(at), 5, 5) for at in at_s)
    assert report.gap_variation == pytest.approx(4.0, rel=0.05)
    assert report.rate == pytest.approx(1.0, rel=0.03)


def test_a_window_is_what_the_trace_holds_there():
    window = take_window(lambda: lines(AZURE_2023), 1, 2)
    assert window.prompt_tokens.tolist() == [396, 879]
    assert window.output_tokens.tolist() == [109, 55]
    assert window.at_s == pytest.approx([0, 0.227298])


def test_a_short_trace_is_begun_anew_a_mean_gap_after_its_end_and_without_its_failed_requests():
    window = take_window(lambda: lines(BURST_GPT), 0, 5)
    assert window.prompt_tokens.tolist() == [472, 417, 472, 417, 472]
    assert window.at_s == pytest.approx([0, 113.5, 227, 340.5, 454])


MILLION = """
import json, resource, sys, tempfile
from pathlib import Path
from kneekeeper.domain.trace_summary import summarise_trace
from kneekeeper.domain.traces import read_trace, take_window
from kneekeeper.load.sources import read_lines
path = Path(sys.argv[1])
few, many = 20_000, 1_000_000
line = '{"timestamp": %d, "input_length": %d, "output_length": 9}'
with path.open("w") as file:
    for start in range(0, many, 1000):
        file.write("\\n".join(line % (at, 1 + at % 5000) for at in range(start, start + 1000)) + "\\n")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
class Few:
    def __iter__(self):
        yield from (text for _, text in zip(range(few), read_lines(path)))
summarise_trace(read_trace(Few()))
before = peak()
report = summarise_trace(read_trace(read_lines(path)))
window = take_window(lambda: read_lines(path), 1_000, 500)
print(json.dumps([report.requests, window.at_s.size, peak() - before, path.stat().st_size]))
"""


def test_a_million_lines_take_no_more_memory_than_twenty_thousand(tmp_path):
    told = subprocess.run(
        [sys.executable, "-c", MILLION, str(tmp_path / "long.jsonl")], capture_output=True, text=True, check=True
    )
    requests, window, grown_kib, size = json.loads(told.stdout)
    assert (requests, window) == (1_000_000, 500)
    assert size > 50_000_000
    assert grown_kib < 2048
