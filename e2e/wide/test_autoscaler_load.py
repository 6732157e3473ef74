"""The HPA of examples/hpa-capacity.yaml holds the SLO while the traffic doubles.

A real HorizontalPodAutoscaler over real pods of the simulated engine. A real Prometheus has the chart's own rules and
scrapes the operator and the pods; this process stands where a cluster has the Prometheus adapter, and asks it the
example's queries.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from e2e import prometheus
from e2e.external_metrics import served
from e2e.lab import Lab, Object, condition
from e2e.runs import deploy, wait_condition
from e2e.wide import LONGEST_RUN_S, SLACK, steady

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "hpa-capacity.yaml"

KNEE_AT_18: dict[str, Any] = {
    "step_time": {"base_ms": 20.0, "per_sequence_ms": 4.0, "per_prefill_token_ms": 0.02},
}
"""A knee that the ramp passes, and a rate that a test machine can send to several replicas."""
TTFT_S, TPOT_S = 1.0, 0.4
"""As in `SLACK`."""

STEADY_S, RAMP_S = 45.0, 180.0
BEFORE, AFTER = 1.5, 3.0
"""Replicas that the load fills, at the promised rate. Two carry it before it grows, at three quarters of what they
promise. In the end two would have to carry half as much again as they promise: a quarter more than was certified, a
sixth more than is predicted to hold."""

LEAST_REPLICAS = 4
"""That fill 3 at 0.8 each."""
MISSES_ALLOWED = 0.01


def example(kind: str) -> Object:
    documents = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
    found: Object = next(document for document in documents if document["kind"] == kind)
    return found


def queries(namespace: str) -> dict[str, str]:
    """The example's, by the metric that they make, in the test's namespace."""
    rules = yaml.safe_load(example("ConfigMap")["data"]["config.yaml"])["externalRules"]
    place = f'namespace="{namespace}"'
    return {rule["name"]["as"]: rule["metricsQuery"].replace('namespace="llm"', place) for rule in rules}


def autoscaler(namespace: str) -> Object:
    """The example's own."""
    found = example("HorizontalPodAutoscaler")
    found["metadata"]["namespace"] = namespace
    return found


@dataclass(frozen=True)
class Place:
    """The workload as its users and its autoscaler reach it."""

    lab: Lab
    namespace: str

    def serving(self) -> list[str]:
        """Addresses of the ready pods."""
        pods = self.lab.find("pods", self.namespace, "app=chat")
        up = [p for p in pods if condition(p, "Ready")["status"] == "True" and "deletionTimestamp" not in p["metadata"]]
        return [pod["status"]["podIP"] for pod in up]

    def told(self, query: str) -> float | None:
        """What Prometheus says; None where it has no answer."""
        (pod,) = self.lab.find("pods", prometheus.NAMESPACE, f"app={prometheus.NAME}")
        url = f"http://{pod['status']['podIP']}:{prometheus.PORT}/api/v1/query"
        found = httpx.get(url, params={"query": query}, timeout=10).json()["data"]["result"]
        return float(found[0]["value"][1]) if found else None


@dataclass
class Seen:
    """One request: when it was meant to be sent, its time to the first token and between tokens; None where it
    failed."""

    after_s: float
    ttft_s: float | None = None
    tpot_s: float = 0.0

    @property
    def missed(self) -> bool:
        return self.ttft_s is None or self.ttft_s > TTFT_S or self.tpot_s > TPOT_S


async def send(place: Place, rate_at: Callable[[float], float], duration_s: float) -> list[Seen]:
    """An open loop with Poisson gaps over the pods in turn, as they become ready."""
    rng, turn = np.random.default_rng(5), count()
    pods = place.serving()
    seen: list[Seen] = []
    tasks: list[asyncio.Task[None]] = []

    async def look() -> None:
        while True:
            await asyncio.sleep(2)
            pods[:] = await asyncio.to_thread(place.serving) or pods

    looking = asyncio.create_task(look())
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:
        begun_s = intended_s = time.monotonic()
        while intended_s - begun_s < duration_s:
            intended_s += float(rng.exponential(1 / rate_at(intended_s - begun_s)))
            await asyncio.sleep(max(0.0, intended_s - time.monotonic()))
            seen.append(Seen(after_s=intended_s - begun_s))
            body = {
                "model": "tiny",
                "prompt": rng.integers(10, 1000, int(rng.integers(50, 151))).tolist(),
                "max_tokens": int(rng.integers(3, 8)),
                "ignore_eos": True,
                "stream": True,
            }
            host = pods[next(turn) % len(pods)]
            tasks.append(asyncio.create_task(_one(client, host, body, seen[-1], intended_s)))
        await asyncio.gather(*tasks)
    looking.cancel()
    return seen


async def _one(client: httpx.AsyncClient, host: str, body: dict[str, Any], seen: Seen, intended_s: float) -> None:
    tokens_s: list[float] = []
    try:
        async with client.stream("POST", f"http://{host}:8000/v1/completions", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    tokens_s.append(time.monotonic())
    except httpx.HTTPError:
        return
    if tokens_s:
        seen.ttft_s = tokens_s[0] - intended_s
        seen.tpot_s = (tokens_s[-1] - tokens_s[0]) / (body["max_tokens"] - 1)


def test_the_slo_holds_while_the_traffic_doubles(lab: Lab, namespace: str):
    deploy(lab, namespace, steady(lab, gpus=0, hardware=KNEE_AT_18), **SLACK)
    ready = wait_condition(lab, namespace, "Ready", "True", timeout_s=LONGEST_RUN_S)
    assert float(ready["status"]["knee"]["upper"]) < 32, "the ramp passed the knee"
    place, asked = Place(lab, namespace), queries(namespace)
    promised = float(ready["status"]["recommendation"]["promisedRequestsPerSecond"])

    def rate_at(passed_s: float) -> float:
        grown = min(1.0, max(0.0, (passed_s - STEADY_S) / RAMP_S))
        return promised * (BEFORE + (AFTER - BEFORE) * grown)

    metrics = {name: (lambda query=query: place.told(query)) for name, query in asked.items()}
    with served(metrics) as objects:
        try:
            lab.apply(*objects, autoscaler(namespace))
            seen = asyncio.run(send(place, rate_at, 2 * STEADY_S + RAMP_S))
            scaled = lab.get("hpa", "chat", namespace)
            serving = len(place.serving())
        finally:
            # An API group that nobody answers keeps every namespace from going.
            lab.kubectl("delete", "--ignore-not-found", "-f", "-", text=yaml.safe_dump_all(objects))
    growing = [each for each in seen if each.after_s >= STEADY_S]
    missed = [each for each in growing if each.missed]
    print(
        f"{len(seen)} requests, {len(growing)} from when they became more; {len(missed)} of these missed; "
        f"{promised:.1f} requests/s promised of a replica, {serving} serve in the end; {json.dumps(scaled['status'])}"
    )
    assert scaled["status"]["desiredReplicas"] >= LEAST_REPLICAS
    assert serving >= LEAST_REPLICAS
    assert len(missed) <= MISSES_ALLOWED * len(growing)
