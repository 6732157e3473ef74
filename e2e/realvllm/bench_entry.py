"""Runs vLLM's own `bench serve`. Executed by path with the vLLM venv's interpreter, never imported.

The `vllm bench serve` command itself cannot be used: the CPU distribution has another name than the one
that the command looks up.
"""

import argparse

from vllm.benchmarks.serve import add_cli_args, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bench serve")
    add_cli_args(parser)
    main(parser.parse_args())
