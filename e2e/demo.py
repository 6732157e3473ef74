"""`make demo`: a real cluster on this machine, two replicas, one profile; what happens is told as it happens."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from e2e import first_run
from e2e.cluster import ClusterSpec
from e2e.cluster.binaries import KUBERNETES, ensure_built
from e2e.cluster.errors import ClusterError
from e2e.cluster.lifecycle import stop
from e2e.cluster.locks import exclusive
from e2e.cluster.paths import State, cache_dir
from e2e.lab import GPU_PRODUCT, Lab, open_lab
from e2e.realvllm import first_run as real_first_run
from e2e.realvllm.environment import prepare

NAMESPACE = "demo"
_START = time.monotonic()


def main() -> int:
    """0 when the story ended well, 1 when it did not; the cluster is left for a look either way."""
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start the cluster and tell the story")
    up.add_argument("--engine", choices=("simulated", "vllm"), default="simulated")
    verbs.add_parser("down", help="take the cluster away")
    arguments = parser.parse_args()
    try:
        return _down() if arguments.verb == "down" else _up(arguments.engine)
    except (ClusterError, AssertionError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _up(engine: str) -> int:
    _say("Starting a Kubernetes on this machine (the first time it is built from source, which takes minutes).")
    lab = open_lab(ClusterSpec(nodes=1, gpus_per_node=4, gpu_product=GPU_PRODUCT))
    _say("kneekeeper and Prometheus run in it. To look at it from another terminal:")
    programs = f"{Path(sys.executable).parent}:{ensure_built(KUBERNETES)}"
    print(f"  export KUBECONFIG={lab.cluster.kubeconfig} PATH={programs}:$PATH")
    print(f"  kubectl -n {NAMESPACE} get sp --watch", flush=True)
    kept = _real(lab) if engine == "vllm" else _simulated(lab)
    _say(f"Look around: kneekeeper status chat -n {NAMESPACE}, or kubectl -n {NAMESPACE} describe sp chat")
    _say("Take it all away: make demo-down")
    return 0 if kept else 1


def _real(lab: Lab) -> bool:
    prepare()
    return real_first_run.tell(lab, lab.namespace(NAMESPACE, labels={}), _say).kept


def _simulated(lab: Lab) -> bool:
    story = first_run.tell(lab, lab.namespace(NAMESPACE), _say)
    assert story.after is not None  # tell ends with it
    kept = story.after.p99_ttft_s <= story.ttft_s and story.after.p99_tpot_s <= story.tpot_s
    setting = story.profile["status"]["applied"]["setting"]
    promised = story.profile["status"]["recommendation"]["promisedRequestsPerSecond"]
    limits = f"{setting['maxNumSeqs']}/{setting['maxNumBatchedTokens']}"
    _say(
        f"The same load {'keeps' if kept else 'does NOT keep'} both targets with {limits}; what kneekeeper promises "
        f"for a replica is {promised} requests/s, a sixth below what it proved."
    )
    return kept


def _down() -> int:
    state = State.default()
    with exclusive(state.lock):
        stop(state)
    _say(f"The cluster is gone. What was built for it stays in {cache_dir()} for the next time.")
    return 0


def _say(text: str) -> None:
    print(f"[{time.monotonic() - _START:5.0f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
