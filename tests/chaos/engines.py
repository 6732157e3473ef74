"""Engines and load agents that answer at once what `engine_law` says they would measure, on the life's clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
from pydantic import SecretStr

from kneekeeper.api.model import Setting
from kneekeeper.api.stage import Samples, StageSpec, StageState, StageStatus
from kneekeeper.domain.arguments import Refusal, read_engine_arguments
from kneekeeper.kube.resources import Resource
from kneekeeper.load.client import AgentClient
from tests.unit.plan.engine_law import answer

SERVING_ADDRESS = "127.0.0.1"
"""Of all pods that serve; clones and agents have addresses of their own."""

_METRICS = (
    "vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n"
    "vllm:num_preemptions_total 0\nvllm:generation_tokens_total 9\n"
)


def setting_of(pod: Resource, container: str) -> Setting:
    """The limits that the pod's engine was started with."""
    [engine] = [each for each in pod["spec"]["containers"] if each["name"] == container]
    read = read_engine_arguments(engine.get("command"), engine.get("args"), {})
    assert not isinstance(read, Refusal), read
    assert read.max_num_seqs is not None
    assert read.max_num_batched_tokens is not None
    return Setting(max_num_seqs=read.max_num_seqs, max_num_batched_tokens=read.max_num_batched_tokens)


@dataclass
class _Stage:
    spec: StageSpec
    status: StageStatus
    samples: Samples
    ends_s: float


@dataclass
class Engines:
    """What is reached at addresses of pods: engines by their IP, and agents that remember their stages."""

    clock_s: Callable[[], float]
    longest_stage_s: float = math.inf
    """On that clock, whatever a stage measured."""
    settings: dict[str, Setting] = field(default_factory=dict)
    """Of the clones, by IP address."""
    started: list[str] = field(default_factory=list)
    """The name of every stage that was really started, in order; without those that only wake an engine."""
    _agents: dict[str, dict[str, _Stage]] = field(default_factory=dict)

    def measured(self, spec: StageSpec) -> tuple[StageStatus, Samples]:
        """What an agent measures on the clone that the stage is for."""
        return answer(spec, self.settings[spec.target.host])

    def clone_starts(self, address: str, pod: Resource, container: str) -> None:
        """An engine is reached at this address from now on."""
        self.settings[address] = setting_of(pod, container)

    def forget(self, address: str) -> None:
        """The clone or the agent there is gone, and what it had in memory."""
        self.settings.pop(address, None)
        self._agents.pop(address, None)

    def metrics(self, address: str) -> str:
        """Of the engine there: those that serve have a request each, the others none."""
        return _METRICS.format(running=int(address == SERVING_ADDRESS))

    def http(self) -> httpx.AsyncClient:
        """Reads from engines."""

        def answered(request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, text=self.metrics(request.url.host))

        return httpx.AsyncClient(transport=httpx.MockTransport(answered))

    def connect_agent(self, host: str, port: int, token: SecretStr) -> AgentClient:
        """The agent at this address; one that nobody reached before has no stages."""
        stages = self._agents.setdefault(host, {})
        transport = httpx.MockTransport(lambda request: self._answer(stages, request))
        return AgentClient(f"http://{host}:{port}", token.get_secret_value(), transport)

    def _answer(self, stages: dict[str, _Stage], request: httpx.Request) -> httpx.Response:
        identity, _, what = request.url.path.removeprefix("/stages/").partition("/")
        if request.method == "PUT":
            return self._start(stages, StageSpec.model_validate_json(request.content))
        stage = stages.get(identity)
        if stage is None:
            return httpx.Response(404, json={"message": "no such stage"})
        if request.method == "DELETE":
            stage.ends_s = self.clock_s()
        running = self.clock_s() < stage.ends_s
        if what == "samples":
            return httpx.Response(200, text=stage.samples.model_dump_json())
        state = StageState.RUNNING if running else stage.status.state
        return httpx.Response(200, text=stage.status.model_copy(update={"state": state}).model_dump_json())

    def _start(self, stages: dict[str, _Stage], spec: StageSpec) -> httpx.Response:
        now_s = self.clock_s()
        running = next((s for s in stages.values() if now_s < s.ends_s and s.spec.id != spec.id), None)
        if running is not None:
            return httpx.Response(409, json={"message": "another stage runs", "running": running.spec.id})
        if spec.id not in stages:
            name = spec.id.rpartition("-")[0]
            # The same stage of another life is the same measurement, whatever its names.
            alike = spec.model_copy(update={"id": name, "seed": 0})
            status, samples = self.measured(alike)
            status = status.model_copy(update={"id": spec.id})
            stages[spec.id] = _Stage(spec, status, samples, now_s + min(status.elapsed_s, self.longest_stage_s))
            if not name.startswith("wake-"):
                self.started.append(name)
        running_status = stages[spec.id].status.model_copy(update={"state": StageState.RUNNING})
        return httpx.Response(201, text=running_status.model_dump_json())
