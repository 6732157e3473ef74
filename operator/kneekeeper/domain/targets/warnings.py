"""What a user should know beside the change itself: said, never acted upon."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kneekeeper.api.model import Setting
from kneekeeper.domain.manifests import ManifestObject, value_at
from kneekeeper.domain.targets.model import Engine

QUICK_PROBE_S = 1

_SHELLS = ("sh", "bash", "dash", "ash")
_SCRIPT_FOLLOWS = re.compile(r"-[a-z]*c")
_USES_ARGUMENTS = re.compile(r"\$\{?[@*0-9]")


def warnings_of_engine(engine: Engine, setting: Setting) -> list[str]:
    """What follows from the arguments alone."""
    arguments, before = engine.arguments, engine.before
    found: list[str] = []
    in_file = (before.file_max_num_seqs, before.file_max_num_batched_tokens)
    if any(text is not None for text in in_file):
        shown = " / ".join(text or "default" for text in in_file)
        found.append(f"current values {shown} come from the config file, not from a default; the command line beats it")
    tokens = arguments.max_num_batched_tokens
    if tokens is not None and setting.max_num_batched_tokens > tokens:
        found.append(f"max_num_batched_tokens is raised from {tokens}, so profile memory grows")
    if arguments.data_parallel_size > 1:
        total = arguments.data_parallel_size * setting.max_num_seqs
        found.append(
            f"data parallel: both limits count per rank, {arguments.data_parallel_size} ranks give {total} running "
            "sequences"
        )
    if arguments.pipeline_parallel_size > 1:
        found.append("pipeline parallel: max_num_seqs caps all micro-batches together")
    if arguments.kv_role == "kv_consumer":
        found.append("TTFT of this model is made in prefill; a verdict on TTFT says nothing about these values")
    if not arguments.chunked_prefill and arguments.max_model_len is not None:
        found.append(
            f"chunked prefill is off: only allowed because {setting.max_num_batched_tokens} >= max_model_len "
            f"{arguments.max_model_len}"
        )
    return found


def warnings_of_pod(
    target: ManifestObject, pod_spec: Mapping[str, Any], container: Mapping[str, Any], engine: Engine, setting: Setting
) -> list[str]:
    """What follows from the pod and its workload."""
    return [
        *warnings_of_engine(engine, setting),
        *_unreached(container),
        *_capture_sizes(container, setting),
        *_probes(container),
        *_rollout(target, container),
    ]


def _unreached(container: Mapping[str, Any]) -> list[str]:
    """A flag behind `sh -c SCRIPT` is an argument of the script, and not of vLLM unless the script hands it on."""
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    at = next((index for index, word in enumerate(words) if _SCRIPT_FOLLOWS.fullmatch(word)), len(words))
    script, behind = "".join(words[at + 1 : at + 2]), words[at + 2 :]
    flags = [word.partition("=")[0] for word in behind if word.startswith("--") and word != "--"]
    if not flags or words[0].rpartition("/")[2] not in _SHELLS or _USES_ARGUMENTS.search(script):
        return []
    return [f'{flags[0]} stands behind the script, which hands it to nobody: write it into the script, or "$@" there']


def _capture_sizes(container: Mapping[str, Any], setting: Setting) -> list[str]:
    """`cudagraph_capture_sizes` as a JSON item of the words; larger batches run without full CUDA graphs."""
    for word in [*(container.get("command") or []), *(container.get("args") or [])]:
        text = word[word.find("{") :] if isinstance(word, str) and "cudagraph_capture_sizes" in word else ""
        try:
            sizes = json.loads(text).get("cudagraph_capture_sizes") if text.startswith("{") else None
        except ValueError:
            continue
        if isinstance(sizes, list) and sizes and all(isinstance(size, int) for size in sizes):
            largest = max(sizes)
            if largest < setting.max_num_seqs:
                return [
                    f"capture sizes end at {largest}: batches of {largest + 1}-{setting.max_num_seqs} leave the full "
                    "graphs, expect a latency step"
                ]
    return []


def _probes(container: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    quick = [
        name
        for name in ("livenessProbe", "readinessProbe")
        if "httpGet" in (container.get(name) or {}) and container[name].get("timeoutSeconds", 1) <= QUICK_PROBE_S
    ]
    if quick:
        found.append(f"a load test can make /health slower than {QUICK_PROBE_S} s: {' and '.join(quick)} then fail")
    startup = container.get("startupProbe") or {}
    if startup:
        limit_s = startup.get("periodSeconds", 10) * startup.get("failureThreshold", 3)
        found.append(f"startup is limited to {limit_s} s; a recompile after the change may need longer")
    if "tcpSocket" in (container.get("readinessProbe") or {}):
        found.append("the tcpSocket probe says Ready as soon as the port opens")
    return found


def _rollout(target: ManifestObject, container: Mapping[str, Any]) -> list[str]:
    spec = target.value.get("spec") or {}
    match target.kind:
        case "StatefulSet" | "DaemonSet" if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            return ["the change restarts nothing (OnDelete): running pods keep the old values until they are deleted"]
        case "LeaderWorkerSet":
            return ["changing the leader restarts the whole group"]
        case "Rollout" if value_at(spec, ("strategy", "canary", "steps")):
            return [
                "the roll-out is finished only when its steps are promoted; until then pods with old and new values "
                "run side by side: never average their metrics"
            ]
        case "Service":
            return [*_concurrency(spec), "a load test through the Service measures the queue-proxy"]
        case "Deployment" if _needs_a_spare_device(spec, container):
            return [
                "one replica is rolled by a surge: without a free accelerator the new pod stays Pending and the old "
                "one is never removed"
            ]
    return []


def _concurrency(spec: Mapping[str, Any]) -> list[str]:
    limit = value_at(spec, ("template", "spec", "containerConcurrency"))
    return [f"containerConcurrency {limit} caps the engine at {limit} running requests"] if limit else []


def _needs_a_spare_device(spec: Mapping[str, Any], container: Mapping[str, Any]) -> bool:
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    limits = (container.get("resources") or {}).get("limits") or {}
    return (
        spec.get("replicas", 1) == 1
        and strategy.get("type", "RollingUpdate") == "RollingUpdate"
        and str(rolling.get("maxUnavailable", "25%")) in ("0", "0%", "25%")
        and any("/" in str(name) for name in limits)
    )


def requests_above(count: Any, what: str, setting: Setting) -> list[str]:
    """For a router or autoscaler that counts requests per replica."""
    if isinstance(count, int) and count > setting.max_num_seqs:
        return [
            f"{what} {count} is above max_num_seqs {setting.max_num_seqs}: replicas queue before more are added; "
            "change both together"
        ]
    return []
