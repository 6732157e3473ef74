"""What the cluster tool's own tests run on and with: a machine of its own, and pods that are a line of Perl."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from e2e.cluster.binaries import KUBERNETES, ensure_built
from e2e.cluster.commands import run
from e2e.cluster.images import HOSTROOT_IMAGE
from e2e.cluster.paths import State
from e2e.cluster.processes import ProcessFolder, ProcessRecord
from e2e.cluster.spec import GPU_RESOURCE

_ROOT = Path(__file__).parent.parent
_WAIT_S = 90.0
ANSWER = "I am the server"

Object = dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """As good as a machine of its own: a network namespace and a state folder."""

    network: str
    """The network namespace's name."""
    state: State

    def run(self, *argv: str | Path, stdin: str | None = None) -> str:
        """Runs a command on the machine. Raises `CommandFailed`."""
        env = {"KNEEKEEPER_STATE": str(self.state.root), "KUBECONFIG": "", "PYTHONPATH": str(_ROOT)}
        return run(["nsenter", f"--net=/run/netns/{self.network}", *argv], stdin=stdin, extra_env=env)

    def tool(self, *arguments: str) -> str:
        """`python -m e2e.cluster …`"""
        return self.run(sys.executable, "-m", "e2e.cluster", *arguments)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """As administrator of the machine's cluster."""
        program = ensure_built(KUBERNETES) / "kubectl"
        return self.run(program, "--kubeconfig", self.state.kubeconfig, *arguments, stdin=stdin)

    def processes(self) -> dict[str, ProcessRecord]:
        """The cluster's processes by name."""
        records = ProcessFolder(self.state.pids, self.state.log).records()
        return {record.name: record for record in records}

    def network_state(self) -> dict[str, str]:
        """Everything of the machine's network that a cluster changes."""
        commands = {
            "links": ["ip", "-brief", "link"],
            "addresses": ["ip", "-brief", "address"],
            "routes": ["ip", "route", "show", "table", "all"],
            "rules": ["nft", "list", "ruleset"],
            "forwarding": ["cat", "/proc/sys/net/ipv4/ip_forward"],
        }
        return {what: self.run(*command) for what, command in commands.items()}

    def apply(self, *objects: Object) -> None:
        """Creates or updates objects."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def field(self, namespace: str, name: str, path: str) -> str:
        """One field of an object such as `pod/web`, by its JSONPath."""
        return self.kubectl("-n", namespace, "get", name, "-o", f"jsonpath={path}")

    def wait_ready(self, namespace: str, pod: str) -> None:
        """Until the pod's containers run."""
        self.kubectl("-n", namespace, "wait", f"pod/{pod}", "--for=condition=Ready", f"--timeout={_WAIT_S:g}s")

    def output(self, namespace: str, pod: str) -> str:
        """What a pod wrote that runs to its end. Raises `CommandFailed` when it does not succeed."""
        done = "--for=jsonpath={.status.phase}=Succeeded"
        self.kubectl("-n", namespace, "wait", f"pod/{pod}", done, f"--timeout={_WAIT_S:g}s")
        return self.kubectl("-n", namespace, "logs", pod).strip()


@contextmanager
def separate_machine(name: str) -> Iterator[Machine]:
    """A machine that has no cluster yet and loses the one it has when the block ends."""
    network = f"kk-{name}-{os.getpid()}"
    run(["ip", "netns", "add", network])
    with tempfile.TemporaryDirectory(prefix="kk-") as folder:
        machine = Machine(network, State(Path(folder) / "s"))
        try:
            machine.run("ip", "link", "set", "lo", "up")
            yield machine
        finally:
            machine.tool("down")
            run(["ip", "netns", "delete", network])


def wait_until(what: str, seen: Callable[[], bool]) -> None:
    """Raises TimeoutError that says what was waited for."""
    deadline = time.monotonic() + _WAIT_S
    while not seen():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_WAIT_S:g} s for {what}")
        time.sleep(0.5)


def perl_pod(namespace: str, name: str, program: str, *, node: str | None = None, gpus: int = 0) -> Object:
    """A pod that runs a Perl program: every Debian has Perl, and the pod borrows the machine's /usr."""
    container: Object = {
        "name": "main",
        "image": HOSTROOT_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/usr/bin/perl", "-e", program],
        "volumeMounts": [{"name": "usr", "mountPath": "/usr", "readOnly": True}],
    }
    if gpus:
        container["resources"] = {"limits": {GPU_RESOURCE: str(gpus)}}
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "usr", "hostPath": {"path": "/usr"}}],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def server(namespace: str, node: str) -> tuple[Object, Object]:
    """A pod `server` that answers every request on port 8000 with `ANSWER`, and its Service on port 80."""
    program = (
        "use IO::Socket::INET; my $l = IO::Socket::INET->new(LocalPort => 8000, Listen => 9, ReuseAddr => 1) or die; "
        'while (my $c = $l->accept) { while (<$c>) { last if /^\\r?$/ } print $c "HTTP/1.0 200 OK\\r\\n\\r\\n'
        f'{ANSWER}"; close $c }}'
    )
    spec = {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8000}]}
    metadata = {"name": "server", "namespace": namespace}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return perl_pod(namespace, "server", program, node=node), service


def fetch(url: str) -> str:
    """A Perl program that prints the body of what the URL answers.

    It asks again for some seconds, since a new pod's address reaches the Service rules a little after the pod is Ready.
    """
    parts = urlsplit(url)
    peer = f'PeerAddr => "{parts.hostname}", PeerPort => {parts.port or 80}'
    return (
        f"use IO::Socket::INET; my $s; for (1..100) {{ $s = IO::Socket::INET->new({peer}) and last; "
        'select(undef, undef, undef, 0.1) } $s or die "no connection: $@"; '
        'print $s "GET / HTTP/1.0\\r\\n\\r\\n"; '
        "local $/; my $a = <$s>; $a =~ s/.*?\\r\\n\\r\\n//s; print $a;"
    )
