"""Whatever stands in a trace: requests in the order of time, or an error with line and column.

`python -m tests.fuzz.trace_lines [-max_total_time=60 …]`; options are those of libFuzzer.
"""

from __future__ import annotations

import math
import sys

import atheris

from tests.fuzz import corpus_arguments

with atheris.instrument_imports(include=["kneekeeper.domain"]):
    from kneekeeper.domain.traces import LARGEST_TOKENS, TraceError, read_trace

SEEDS = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2024-05-10 00:00:00+00:00,1,2\n",
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n",
    b'{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n',
    b'{"timestamp_s": 0.5, "prompt_tokens": 10, "output_tokens": 3}\n\n{"timestamp_s": 0.5, "prompt_tokens": 0}\n',
)
WORDS = ("timestamp", "input_length", "ContextTokens", "Request tokens", "NaN", "Infinity", "1e400", "-1", "null", ",")


def check(data: bytes) -> None:
    """Read one trace. Raises AssertionError where a promise is broken."""
    lines = data.decode("utf-8", "replace").splitlines()
    last_s, count, refused = 0.0, 0, None
    try:
        for request in read_trace(lines):
            count += 1
            assert math.isfinite(request.at_s)
            assert request.at_s >= last_s, "time never goes back"
            assert 0 <= request.prompt_tokens <= LARGEST_TOKENS
            assert 0 <= request.output_tokens <= LARGEST_TOKENS
            last_s = request.at_s
    except TraceError as error:
        refused = error
    assert refused is not None or count > 0, "a trace without a request is an error"
    assert refused is None or (1 <= refused.line <= len(lines) + 1 and refused.column >= 1)


def main() -> None:
    atheris.Setup([*sys.argv, *corpus_arguments("trace_lines", SEEDS, WORDS)], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
