import json
from pathlib import Path

import pytest

from e2e.realvllm.bench_client import BenchFailed, BenchLoad, parse_result, write_prompts

LOAD = BenchLoad(rate_rps=5.0, requests=40, prompt_tokens=(200, 1000), output_tokens=(8, 16))


def result_json(*, completed: int = 40, failed: int = 0, output_tokens: int = 480) -> str:
    return json.dumps(
        {
            "p99_ttft_ms": 410.5,
            "p50_ttft_ms": 90.0,
            "p99_tpot_ms": 31.0,
            "p50_tpot_ms": 12.0,
            "completed": completed,
            "failed": failed,
            "request_throughput": 4.8,
            "duration": 8.3,
            "total_output_tokens": output_tokens,
        }
    )


def test_a_result_is_read_with_its_units():
    result = parse_result(result_json(), LOAD, expected_output_tokens=480)
    assert (result.p99_ttft_ms, result.p99_tpot_ms, result.completed, result.failed) == (410.5, 31.0, 40, 0)
    assert (result.offered_rps, result.achieved_rps) == (5.0, 4.8)


def test_a_short_answer_makes_the_result_invalid():
    with pytest.raises(BenchFailed, match="TPOT would be wrong"):
        parse_result(result_json(output_tokens=479), LOAD, expected_output_tokens=480)


def test_failed_requests_are_reported_and_excuse_missing_tokens():
    result = parse_result(result_json(completed=39, failed=1, output_tokens=468), LOAD, expected_output_tokens=480)
    assert result.failed == 1


def test_a_request_that_is_in_no_count_makes_the_result_invalid():
    with pytest.raises(BenchFailed, match="40 requests were asked for"):
        parse_result(result_json(completed=39), LOAD, expected_output_tokens=480)


def test_prompts_have_one_letter_a_token_and_share_no_beginning(tmp_path: Path):
    path = tmp_path / "prompts.jsonl"
    total = write_prompts(path, LOAD, seed=7)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(200 <= len(row["prompt"]) <= 1000 and row["prompt"].isascii() for row in rows)
    assert total == sum(row["output_tokens"] for row in rows)
    assert len({row["prompt"][:16] for row in rows}) == LOAD.requests


def test_another_seed_gives_other_prompts(tmp_path: Path):
    write_prompts(tmp_path / "one", LOAD, seed=1)
    write_prompts(tmp_path / "two", LOAD, seed=2)
    write_prompts(tmp_path / "again", LOAD, seed=1)
    assert (tmp_path / "one").read_text() != (tmp_path / "two").read_text()
    assert (tmp_path / "one").read_text() == (tmp_path / "again").read_text()
