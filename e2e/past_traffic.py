"""Hours of traffic that serving pods had, for a real Prometheus: a day cannot be waited for.

Each pod's engine is the simulated one with only its clock replaced (benchmarks/diagnosis/replica.py). What it exposes
is scraped on the way and stored under the pod's name, as if Prometheus had scraped the pod itself.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.diagnosis.replica import HEALTHY, Replica, SimulatedTime
from e2e.cluster.commands import find_program, run
from e2e.prometheus import PORT
from kneekeeper.api.offered_load import LogNormal
from kneekeeper.domain.workload import Stream, draw_lengths, generator
from kneekeeper.engine.hardware import read_hardware

Object = dict[str, Any]

SCRAPE_S = 15.0
_READ = (
    "cache_config_info",
    "generation_tokens_total",
    "inter_token_latency_seconds_(count|sum)",
    "iteration_tokens_total_count",
    "kv_cache_usage_perc",
    "num_preemptions_total",
    "num_requests_(running|waiting)",
    "prefix_cache_(hits|queries)_total",
    "prompt_tokens_total",
    "request_(generation|prompt)_tokens_(bucket|count|sum)",
    "request_prefill_time_seconds_(count|sum)",
    "time_to_first_token_seconds_(bucket|count|sum)",
)
"""What the operator reads of history. The rest would triple the blocks."""
_SAMPLE = re.compile(rf"^(?P<name>vllm:({'|'.join(_READ)}))\{{(?P<labels>.*)\}} (?P<value>\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Past:
    """Requests of these lengths came as a Poisson process whose rate rose and fell between these, in requests/s."""

    hours: float
    prompt_tokens: LogNormal
    output_tokens: LogNormal
    lowest_rate: float
    highest_rate: float
    waves: float = 1.5
    """How often it rose and fell."""

    @property
    def length_s(self) -> float:
        return self.hours * 3600

    def rate(self, at_s: float) -> float:
        share = 0.5 - 0.5 * math.cos(2 * math.pi * self.waves * at_s / self.length_s)
        return self.lowest_rate + (self.highest_rate - self.lowest_rate) * share


def served(past: Past, arguments: Sequence[str], hardware: Object, seed: int) -> Iterator[tuple[float, str]]:
    """Seconds from the beginning and what the engine exposed then, scrape by scrape."""
    time = SimulatedTime()
    replica = Replica(time, read_hardware(json.dumps(hardware)), tuple(arguments), HEALTHY, seed)
    chance = random.Random(seed)
    many = math.ceil(past.highest_rate * past.length_s * 1.2) + 100
    prompts, outputs = (
        iter(draw_lengths(lengths, many, generator(seed, stream)).tolist())
        for stream, lengths in (
            (Stream.PROMPT_LENGTHS, past.prompt_tokens),
            (Stream.OUTPUT_LENGTHS, past.output_tokens),
        )
    )

    def arrival() -> None:
        # Thinned: arrivals of the highest rate, of which as many are kept as the present rate has.
        if chance.random() < past.rate(time.now_s) / past.highest_rate:
            replica.send(next(prompts), next(outputs), 0)
        time.call_later(chance.expovariate(past.highest_rate), arrival)

    time.call_later(chance.expovariate(past.highest_rate), arrival)
    at_s = 0.0
    while at_s <= past.length_s:
        time.run_until(at_s)
        yield at_s, replica.scrape()
        replica.answered.clear()
        at_s += SCRAPE_S


def open_metrics(scrapes: Iterator[tuple[float, str]], began_s: float, namespace: str, pod: str) -> Iterator[str]:
    """Lines of what Prometheus would have stored; `began_s` is Unix time."""
    own = f'namespace="{namespace}",pod="{pod}",job="vllm"'
    for at_s, text in scrapes:
        for found in _SAMPLE.finditer(text):
            yield f"{found['name']}{{{own},{found['labels']}}} {found['value']} {began_s + at_s:.3f}\n"


def store(lines: Iterator[str], folder: Path, data: Path) -> None:
    """Write them as blocks of a Prometheus whose data stand, or will, in `data`."""
    path = folder / "past.om"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(lines)
        file.write("# EOF\n")
    run([find_program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", path, data])
    path.unlink()


def prometheus(image: str, namespace: str, data: Path, pods: Mapping[str, str], port: int) -> list[Object]:
    """A server on those blocks, which are on the node, that scrapes `pods`, addresses by name, from now on; a Service
    `past` in front of it."""
    meta = {"name": "past", "namespace": namespace}
    targets = [
        {"targets": [f"{address}:{port}"], "labels": {"namespace": namespace, "pod": pod}}
        for pod, address in pods.items()
    ]
    config = {
        "global": {"scrape_interval": "5s"},
        "scrape_configs": [{"job_name": "vllm", "static_configs": targets}],
    }
    arguments = ["--config.file=/etc/prometheus/prometheus.yml", f"--storage.tsdb.path={data}"]
    container: Object = {
        "name": "prometheus",
        "image": image,
        "imagePullPolicy": "Never",
        "args": arguments,
        "securityContext": {"runAsUser": os.getuid()},  # who wrote the blocks
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/prometheus"}, {"name": "data", "mountPath": str(data)}],
    }
    volumes = [{"name": "config", "configMap": {"name": "past"}}, {"name": "data", "hostPath": {"path": str(data)}}]
    labels = {"app": "past"}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"prometheus.yml": json.dumps(config)}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta | {"labels": labels},
            "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 2},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": labels, "ports": [{"port": PORT}]},
        },
    ]
