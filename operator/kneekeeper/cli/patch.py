"""`kneekeeper patch`: the two limits in a file of Kubernetes objects.

All objects of the file go to standard output, changed or not, with every other byte as it was. The outcome goes
to standard error.
"""

from __future__ import annotations

import argparse

from kneekeeper.cli.argument_types import batched_tokens, sequences
from kneekeeper.cli.parser import Commands

_EPILOG = """\
exit codes:
  0    rewritten, or nothing was to be changed
  2    wrong usage
  3    only recommended: somebody else writes the object
  4    refused: not understood, or it would do harm

examples:
  kneekeeper patch --file chat.yaml --max-num-seqs 64 --max-num-batched-tokens 4096 > new.yaml"""


def add_to(commands: Commands) -> None:
    """`kneekeeper patch`."""
    parser = commands.add_parser(
        "patch",
        help="write the two limits into a file of Kubernetes objects",
        description="Prints all objects of the file with the two limits of one engine changed, and nothing else.",
        epilog=_EPILOG,
    )
    parser.add_argument("--file", required=True, help="YAML or JSON; - reads standard input")
    parser.add_argument("--target", metavar="KIND/NAME", help="the object; not needed where one object runs vLLM")
    parser.add_argument("--container", help="its container; for a RayService the model_id")
    parser.add_argument("--max-num-seqs", type=sequences, required=True, metavar="N")
    parser.add_argument("--max-num-batched-tokens", type=batched_tokens, required=True, metavar="M")
    parser.add_argument("--json", action="store_true", help="tell the outcome as one line of JSON")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from kneekeeper.cli.manifest_patch import run

    return run(arguments)
