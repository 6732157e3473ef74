"""`python -m e2e.cluster prepare | up | down | status | kubeconfig`."""

from __future__ import annotations

import argparse
import os
import sys

from e2e.cluster.errors import ClusterError
from e2e.cluster.lifecycle import ensure_up, find, prepare, stop
from e2e.cluster.locks import exclusive
from e2e.cluster.paths import State
from e2e.cluster.spec import ClusterSpec


def main() -> int:
    """0 is success, 1 an error that is told or a cluster that does not run."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description="A Kubernetes on this machine.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("prepare", help="install packages and build programs")
    up = verbs.add_parser("up", help="start it, or find that it runs")
    up.add_argument("--nodes", type=int, default=1)
    up.add_argument("--gpus-per-node", type=int, default=0)
    up.add_argument("--gpu-product", default=ClusterSpec().gpu_product)
    verbs.add_parser("down", help="take it away")
    verbs.add_parser("status", help="tell whether it runs")
    verbs.add_parser("kubeconfig", help="print the path of its kubeconfig")
    arguments = parser.parse_args()
    try:
        return _run(arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    match arguments.verb:
        case "prepare":
            prepare()
        case "up":
            spec = ClusterSpec(arguments.nodes, arguments.gpus_per_node, arguments.gpu_product)
            print(f"{spec}; KUBECONFIG={ensure_up(spec).kubeconfig}")
        case "down":
            if os.environ.get("KUBECONFIG"):
                print("KUBECONFIG names another cluster; it is left alone")
                return 0
            state = State.default()
            with exclusive(state.lock):
                stop(state)
        case _:
            cluster = find()
            if cluster is None:
                print("no cluster runs; start one with `python -m e2e.cluster up`", file=sys.stderr)
                return 1
            print(cluster.kubeconfig if arguments.verb == "kubeconfig" else f"{cluster.spec}: answers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
