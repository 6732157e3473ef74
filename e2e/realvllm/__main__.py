"""`python -m e2e.realvllm prepare|golden|startup-logs|study`."""

import argparse
import sys
import time

from e2e.realvllm import golden, startup_logs, study
from e2e.realvllm.bench_client import BenchFailed
from e2e.realvllm.environment import RealVllmUnavailable, prepare


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.realvllm", description="Real vLLM without a GPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("prepare", help="install vLLM and the tiny model into the cache")
    commands.add_parser("golden", help="take the golden /metrics body from a real server")
    commands.add_parser("startup-logs", help="take the logs of servers that refuse to start")
    commands.add_parser("study", help="compare the scenario's two settings on this machine")
    command = parser.parse_args().command
    try:
        engine = prepare()
        if command == "prepare":
            print(f"vLLM: {engine.venv}\nPython: {engine.python_home}\nmodel: {engine.model}")
        elif command == "golden":
            golden.METRICS_GOLDEN.parent.mkdir(parents=True, exist_ok=True)
            golden.METRICS_GOLDEN.write_text(golden.take(engine), encoding="utf-8")
            print(golden.METRICS_GOLDEN)
        elif command == "study":
            print(study.TABLE_HEAD, flush=True)
            for row in study.separate(engine, seed=time.time_ns() % 1_000_000_000):
                print(row, flush=True)
        else:
            for path in startup_logs.take_all(engine):
                print(path, flush=True)
    except (RealVllmUnavailable, BenchFailed) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
