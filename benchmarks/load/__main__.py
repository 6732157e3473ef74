"""How exactly do load generators measure? `python -m benchmarks.load`, or `make bench-load`.

A server that stamps what it does answers at a fixed pace; each client offers it the same loads and reports what it
saw. The error is the client's quantile minus that of the truth. The last line is one JSON object; with `--table`
the results are also written as a page.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load.clients.aiperf import AiPerf
from benchmarks.load.clients.guidellm import GuideLlm
from benchmarks.load.clients.inference_perf import InferencePerf
from benchmarks.load.clients.kneekeeper import Kneekeeper
from benchmarks.load.clients.vllm import VllmBench
from benchmarks.load.environments import ClientUnavailable
from benchmarks.load.levels import Client, ClientFailed, Level
from benchmarks.load.measure import measure
from benchmarks.load.results import Results, as_json, as_page
from benchmarks.load.truth import Plan, TruthServerError, running

CLIENTS: dict[str, type[Client]] = {
    client.name: client for client in (Kneekeeper, VllmBench, GuideLlm, AiPerf, InferencePerf)
}


def parse_level(text: str, rounds_of_a_stream: int, duration_s: float, output_tokens: int) -> Level:
    """`64` is a closed loop, `200rps` an open one."""
    if text.endswith("rps"):
        rate = float(text.removesuffix("rps"))
        return Level(round(rate * duration_s), output_tokens, rate=rate)
    return Level(int(text) * rounds_of_a_stream, output_tokens, streams=int(text))


def run(options: argparse.Namespace) -> Results:
    """All clients at all levels, round by round, so that a noisy minute meets all of them."""
    plan = Plan(options.ttft_ms, options.tpot_ms, options.spread)
    levels = [parse_level(text, options.requests, options.duration_s, options.output_tokens) for text in options.levels]
    results = Results(plan, options.output_tokens)
    clients = [CLIENTS[name]() for name in options.clients]
    for client in clients:
        try:
            client.prepare()
        except ClientUnavailable as error:
            results.skip(client, str(error))
    with running() as server:
        for turn, level in enumerate(level for _ in range(options.rounds) for level in levels):
            if turn:
                time.sleep(options.rest_s)
            for client in clients:
                if results.is_skipped(client):
                    continue
                began_s = time.monotonic()
                try:
                    measured = measure(client, level, plan, server)
                except ClientFailed as error:
                    results.fail(client, level, str(error))
                    said = f"failed: {error}"
                else:
                    results.add(client, level, measured)
                    said = f"{measured}"
                print(f"{client.name} {level.name} {time.monotonic() - began_s:.0f} s: {said}", file=sys.stderr)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--levels", nargs="+", default=["64", "256", "512", "200rps"], metavar="STREAMS|RATErps")
    parser.add_argument("--rounds", type=int, default=1, help="the medians over so many are told")
    parser.add_argument("--requests", type=int, default=4, help="of each stream of a closed loop")
    parser.add_argument("--duration-s", type=float, default=10.0, help="of the open loop")
    parser.add_argument("--output-tokens", type=int, default=100)
    parser.add_argument("--ttft-ms", type=float, default=100.0)
    parser.add_argument("--tpot-ms", type=float, default=20.0)
    parser.add_argument("--spread", type=float, default=0.0, help="0.5 draws each time from 50%% to 150%% of its mean")
    parser.add_argument("--rest-s", type=float, default=0.0, help="leave the machine to others between the levels")
    parser.add_argument("--table", type=Path, help="write a page of the results")
    options = parser.parse_args(arguments)
    try:
        results = run(options)
    except TruthServerError as error:
        print(error, file=sys.stderr)
        return 1
    if options.table is not None:
        options.table.write_text(as_page(results), encoding="utf-8")
    print(json.dumps(as_json(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
