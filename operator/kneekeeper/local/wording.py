"""Messages of the plan and of the load, as somebody reads them who typed a command on this machine.

They are made for a profile in a cluster: they name its fields, its pods and its load agent. Here the same things are
flags, a server and this machine.
"""

from __future__ import annotations

import re

from kneekeeper.api.tuning_run import Verdict

_FIELDS = (
    (r"the targets in spec\.slo", "--ttft, --tpot or --e2e"),
    (r"spec\.slo targets", "--ttft, --tpot and --e2e"),
    (r"spec\.slo\.p99TTFT", "--ttft"),
    (r"spec\.slo\.p99TPOT", "--tpot"),
    (r"spec\.slo\.p99E2E", "--e2e"),
    (r"spec\.objective Throughput", "--objective throughput"),
    (r"spec\.probe\.budget\.", "--budget "),
    (r"spec\.probe\.ladder\.", "--ladder "),
    (r"spec\.parameters\.", "--bounds "),
    (r"spec\.parameters", "--bounds"),
    (r"name its Secret in spec\.endpoint\.apiKeySecretRef", "name the file with it in --api-key-file"),
    (r"spec\.updatePolicy\.minImprovementPercent", "the 5% that are asked for"),
    (r"spec\.workload\.traceRef", "--trace"),
    (r"spec\.workload\.prompts", "--prompts"),
    (r"spec\.workload\.(\w+)", r"\1 in the file of --workload"),
    (r"spec\.workload", "the file of --workload"),
    (r" to have the profile accepted\.", "."),
)

_CLUSTER = (
    (r"Name the engine's container(?: in spec\.targetRef\.container)?\. ", ""),
    (r"The container's program", "The program"),
    (
        r"the container's command as (?:a list: )?\[vllm, serve\] or \[python3, -m, (\S+)\]",
        r"the command as vllm serve MODEL or python3 -m \1",
    ),
    (r"Write the container's command as a list, or the script without it\.", "Write the command without a shell."),
    (
        r"Mount it from a ConfigMap that can be read, or write them into the container's args\.",
        "Write them into the command.",
    ),
    (r"Set it by a literal value or a ConfigMap, or write (the \w+) out\.", r"Write \1 out."),
    (r"Remove the profile, or point it at a generating model\.", "Serve a generating model."),
    (r"Point the profile at the workload whose pods serve HTTP\.", "Leave it out."),
    (
        r"Give the load agent more CPU(?:, or a node that is less busy)?\.",
        "Stop what else works on this machine, or offer less load.",
    ),
    (r"Spread the load over more agents\.", "It is at its limit: offer less load."),
    (r"Look for out-of-memory kills of the load agent\.", "Look for out-of-memory kills, with dmesg."),
    (r"its log says how\. Start the stage anew\.", "the lines above say how. Measure again."),
    (r"Give the agent a free core, look for other work on the node,", "Stop what else works on this machine,"),
    (r"Let the operator reach the engine's /metrics\.", "Start the server without --disable-log-stats."),
    (r"Look\s+for a NetworkPolicy\b.*", "Look for a firewall, and at --host and --port of the server's command."),
    (r"set enableServiceLinks: false in the pod template, or rename the Service\.", "unset it."),
    (r"A Service named vllm sets VLLM_PORT in every pod of its namespace:", "VLLM_PORT is set and is no port:"),
    (r"remove it, or use another image\.", "remove it, or use another version."),
    (r"an old pod has not ended yet", "an old server has not ended yet"),
    (r"Read the pod's log; start", "Read the server's log; start"),
    (r"look at its volume", "look at its permissions"),
    (r"\b(?:load )?agent\b", "load generator"),
    (r"\bon the node\b", "on this machine"),
)

_LESS_LOAD = r"\boffer less load\b"


def verdict_word(verdict: str | None) -> str:
    """As people read it; empty where nothing was judged."""
    return "NOT MEASURED" if verdict == Verdict.VOID else (verdict or "").upper()


def for_tune(message: str) -> str:
    """A message of the plan or the load in the flags of `kneekeeper tune`."""
    return _replaced(message, (*_FIELDS, *_CLUSTER, (_LESS_LOAD, "lower --ladder maxConcurrency")))


def for_probe(message: str) -> str:
    """A message of the load, or of what is wrong with a workload, in the flags of `kneekeeper probe`."""
    return _replaced(message, (*_FIELDS, *_CLUSTER, (_LESS_LOAD, "offer less by --rate, --users or --ladder")))


def _replaced(message: str, words: tuple[tuple[str, str], ...]) -> str:
    for pattern, ours in words:
        message = re.sub(pattern, ours, message)
    return message
