"""`make demo`: a real cluster on this machine, two replicas, one profile; what happens is told as it happens."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import yaml

from e2e import first_run
from e2e.cluster import ClusterSpec
from e2e.cluster.binaries import KUBERNETES, ensure_built
from e2e.cluster.errors import ClusterError
from e2e.cluster.lifecycle import stop
from e2e.cluster.locks import exclusive
from e2e.cluster.paths import State, cache_dir
from e2e.cluster.progress import tell_with, told
from e2e.lab import GPU_PRODUCT, Lab, open_lab
from e2e.realvllm import first_run as real_first_run
from e2e.realvllm.environment import RealVllmUnavailable, prepare

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
    os.environ.pop("KUBECONFIG", None)  # whatever cluster a person works with, the demo is not for it
    tell_with(_say)
    try:
        return _down() if arguments.verb == "down" else _up(arguments.engine)
    except (ClusterError, RealVllmUnavailable, AssertionError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        _say("Interrupted. What runs goes on: make demo-down takes it away, make demo begins the story anew.")
        return 130


def _up(engine: str) -> int:
    lab = open_lab(ClusterSpec(nodes=1, gpus_per_node=4, gpu_product=GPU_PRODUCT))
    ready_s = time.monotonic() - _START
    _say("The cluster runs. To look at it from another terminal:")
    programs = f"{Path(sys.executable).parent}:{ensure_built(KUBERNETES)}"
    print(f"  export KUBECONFIG={_kubeconfig(lab)} PATH={programs}:$PATH")
    print("  kubectl get sp --watch", flush=True)
    kept = _real(lab) if engine == "vllm" else _simulated(lab)
    _say(f"The cluster was ready after {ready_s:.0f} s; all else took {time.monotonic() - _START - ready_s:.0f} s.")
    print("In the other terminal:")
    for verb in ("status", "curve", "explain"):
        print(f"  kneekeeper {verb} chat")
    print("Take it all away: make demo-down", flush=True)
    return 0 if kept else 1


def _kubeconfig(lab: Lab) -> Path:
    """One of its own that leads to the demo's namespace, so that all that the pages tell to type works as it stands."""
    target = lab.cluster.kubeconfig.with_name("demo.kubeconfig")
    config = yaml.safe_load(lab.cluster.kubeconfig.read_text())
    for named in config["contexts"]:
        named["context"]["namespace"] = NAMESPACE
    target.touch(mode=0o600)
    target.write_text(yaml.safe_dump(config))
    return target


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
    if not kept and os.getloadavg()[0] > (os.cpu_count() or 1):
        load = f"{os.getloadavg()[0]:.0f} processes want to run on {os.cpu_count()} CPUs"
        _say(f"That says little: this machine is overloaded ({load}). Once it is quiet, run it again.")
    _say(f"From applying the profile until it was tuned, rolled out and verified: {story.tuned_s:.0f} s.")
    return kept


def _down() -> int:
    state = State.default()
    with exclusive(state.lock), told("Taking the cluster away: pods, processes, mounts, interfaces."):
        stop(state)
    _say(f"The cluster is gone. What was built for it stays in {cache_dir()} for the next time.")
    return 0


def _say(text: str) -> None:
    print(f"[{time.monotonic() - _START:5.0f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
