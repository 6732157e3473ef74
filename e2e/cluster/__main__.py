"""`python -m e2e.cluster prepare | up | down | status | kubeconfig`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from e2e.cluster.errors import ClusterError
from e2e.cluster.lifecycle import Health, check, ensure_up, foreign_kubeconfig, prepare, stop
from e2e.cluster.locks import exclusive
from e2e.cluster.paths import State
from e2e.cluster.progress import tell_with
from e2e.cluster.spec import ClusterSpec
from e2e.cluster.start import is_answering


def main() -> int:
    """0 is success, 1 an error that is told or a cluster that is not healthy."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description="A Kubernetes on this machine.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("prepare", help="install packages and build programs")
    up = verbs.add_parser("up", help="start it, or find that it runs")
    up.add_argument("--nodes", type=int, default=1)
    up.add_argument("--gpus-per-node", type=int, default=0)
    up.add_argument("--gpu-product", default=ClusterSpec().gpu_product)
    verbs.add_parser("down", help="take it away")
    verbs.add_parser("status", help="tell whether it is healthy")
    verbs.add_parser("kubeconfig", help="print the path of its kubeconfig")
    arguments = parser.parse_args()
    tell_with(lambda text: print(text, file=sys.stderr, flush=True))
    try:
        return _run(arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    foreign = foreign_kubeconfig()
    match arguments.verb:
        case "prepare":
            prepare()
        case "up":
            spec = ClusterSpec(arguments.nodes, arguments.gpus_per_node, arguments.gpu_product)
            print(f"{spec}; KUBECONFIG={ensure_up(spec).kubeconfig}")
        case "down" if foreign is not None:
            print("KUBECONFIG names another cluster; it is left alone")
        case "down":
            state = State.default()
            with exclusive(state.lock):
                stop(state)
        case "status":
            return _status(foreign)
        case _:
            print(foreign or State.default().kubeconfig)
    return 0


def _status(foreign: Path | None) -> int:
    if foreign is not None:
        answers = is_answering(foreign)
        print(f"the cluster of KUBECONFIG={foreign} {'answers' if answers else 'does not answer'}")
        return 0 if answers else 1
    health = check(State.default())
    print(health)
    return 0 if health.spec is not None and health == Health.of(health.spec) else 1


if __name__ == "__main__":
    sys.exit(main())
