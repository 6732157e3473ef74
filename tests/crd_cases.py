"""Specs that both the models and the API server must accept, and specs that both must refuse."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

MINIMAL_SPEC: dict[str, Any] = {"targetRef": {"kind": "Deployment", "name": "chat"}, "slo": {"p99TPOT": "40ms"}}

_LOG_NORMAL = {"distribution": "LogNormal", "mean": 800, "p99": 4000, "max": 8000}
_UNIFORM = {"distribution": "Uniform", "min": 10, "max": 200}
_FIXED = {"distribution": "Fixed", "value": 128}

FULL_SPEC: dict[str, Any] = {
    "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat", "container": "vllm"},
    "slo": {"p99TTFT": "500ms", "p99TPOT": "40ms", "p99E2E": "1m30s", "availabilityPercent": 99},
    "workload": {
        "promptTokens": _LOG_NORMAL,
        "outputTokens": _UNIFORM,
        "arrivals": {"process": "Trace"},
        "prefixCacheHitPercent": 30,
        "classes": [
            {
                "name": "chat",
                "weightPercent": 70,
                "promptTokens": _LOG_NORMAL,
                "outputTokens": _UNIFORM,
                "slo": {"p99TTFT": "1s"},
            },
            {"name": "batch", "weightPercent": 30, "promptTokens": _FIXED, "outputTokens": _FIXED},
        ],
        "prompts": {"configMapRef": {"name": "prompts", "key": "prompts.jsonl"}},
        "traceRef": {"persistentVolumeClaim": {"name": "traces", "key": "monday.csv"}},
    },
    "objective": "Interactive",
    "parameters": {
        "maxNumSeqs": {"min": 8, "max": 256},
        "maxNumBatchedTokens": {"min": 512, "max": 8192},
        "kneeElasticityPercent": 20,
    },
    "probe": {
        "allow": ["Clone", "BorrowReplica", "InPlace", "Passive"],
        "ladder": {
            "maxConcurrency": 256,
            "maxStageDuration": "1m",
            "recovery": "1.5s",
            "controlTolerancePercent": 10,
        },
        "budget": {
            "maxMeasureDuration": "30m",
            "startTimeout": "10m",
            "maxRestarts": 2,
            "maxGPUSeconds": 3600,
        },
        "window": {"schedule": "0 3 * * *", "timeZone": "Europe/Berlin", "duration": "2h"},
        "clone": {"keep": ["sidecar.istio.io/inject"]},
        "allowScaleUp": True,
        "liveTuning": "Allowed",
    },
    "endpoint": {
        "port": 8000,
        "scheme": "https",
        "rootPath": "/llm",
        "model": "chat",
        "apiKeySecretRef": {"name": "key", "key": "token"},
        "serverName": "chat.prod.svc",
        "caBundleRef": {"name": "ca", "key": "ca.crt"},
    },
    "metrics": {"prometheusRef": {"url": "http://prometheus:9090"}, "matchLabels": {"job": "chat"}},
    "schedules": [
        {
            "cron": "0 8 * * 1-5",
            "timeZone": "UTC",
            "duration": "10h",
            "workload": {"arrivals": {"process": "Closed", "users": 20}, "prefixCacheHitPercent": 0},
            "parameters": {"maxNumSeqs": {"max": 64}, "maxNumBatchedTokens": {"min": 1024}},
        }
    ],
    "retune": {"on": ["Image", "Traffic"], "minInterval": "6h"},
    "updatePolicy": {
        "mode": "Apply",
        "method": "Args",
        "minImprovementPercent": 5,
        "verifyFor": "10m",
        "rollback": "Manual",
        "liveChanges": "Allowed",
    },
    "deletionPolicy": "Restore",
    "runHistoryLimit": 3,
    "suspend": True,
}


@dataclass(frozen=True)
class Refused:
    """A change to `FULL_SPEC`, by path, that breaks one rule."""

    name: str
    path: str
    value: Any
    message: str

    def spec(self) -> dict[str, Any]:
        """The changed spec. A value of None removes the field."""
        spec = copy.deepcopy(FULL_SPEC)
        *parents, last = self.path.split(".")
        node: Any = spec
        for key in parents:
            node = node[int(key)] if key.isdigit() else node[key]
        if self.value is None:
            del node[last]
        else:
            node[last] = self.value
        return spec


_LENGTHS = "workload.promptTokens"
_ARRIVALS = "workload.arrivals"
_ONE_SOURCE = "give exactly one of configMapRef and persistentVolumeClaim"
_GAMMA = "Gamma needs burstinessPercent, the other processes have none"
_CLOSED = "Closed needs users, the other processes have none"
_TRACE = "arrivals and lengths of Trace need traceRef, others have none"
_EMPIRICAL = "Empirical needs bins, the other distributions have none"
_HISTOGRAM = {"distribution": "Empirical", "bins": [{"min": 1, "max": 10, "weight": 3}]}
_OF_TRACE = {"distribution": "Trace"}
_DECLARED = "a class declares its lengths; a trace holds one kind of requests"
_TRACE_TIME = "only Trace has a traceTime"
_UNIFORM_RULE = "Uniform needs min and max with min <= max, the other distributions have no min"
_LOG_NORMAL_RULE = "LogNormal needs mean and p99 with p99 >= mean, the other distributions have neither"

BROKEN_RULES = (
    Refused(
        "a profile without any latency target",
        "slo",
        {"availabilityPercent": 99},
        "set at least one of slo.p99TTFT, slo.p99TPOT and slo.p99E2E, or objective: Throughput",
    ),
    Refused("a TTFT of zero", "slo.p99TTFT", "0s", "must be between 1ms and 1h"),
    Refused("a TTFT of hours", "slo.p99TTFT", "61m", "must be between 1ms and 1h"),
    Refused("a TPOT below any engine", "slo.p99TPOT", "9us", "must be between 10us and 10m"),
    Refused("an E2E of days", "slo.p99E2E", "25h", "must be between 1ms and 24h"),
    Refused(
        "a bound on sequences upside down",
        "parameters.maxNumSeqs",
        {"min": 9, "max": 8},
        "min must not be above max",
    ),
    Refused(
        "a bound on tokens upside down",
        "schedules.0.parameters",
        {"maxNumBatchedTokens": {"min": 9, "max": 8}},
        "min must not be above max",
    ),
    Refused(
        "Fixed without its value",
        _LENGTHS,
        {"distribution": "Fixed"},
        "Fixed needs value, the other distributions have none",
    ),
    Refused(
        "a value beside LogNormal",
        _LENGTHS,
        _LOG_NORMAL | {"value": 3},
        "Fixed needs value, the other distributions have none",
    ),
    Refused("a maximum beside Fixed", _LENGTHS, _FIXED | {"max": 3}, "Fixed has no max"),
    Refused("Uniform without a maximum", _LENGTHS, {"distribution": "Uniform", "min": 3}, _UNIFORM_RULE),
    Refused("Uniform upside down", _LENGTHS, _UNIFORM | {"min": 201}, _UNIFORM_RULE),
    Refused("a minimum beside LogNormal", _LENGTHS, _LOG_NORMAL | {"min": 3}, _UNIFORM_RULE),
    Refused("LogNormal without p99", _LENGTHS, {"mean": 3}, _LOG_NORMAL_RULE),
    Refused("LogNormal with p99 below mean", _LENGTHS, {"mean": 3, "p99": 2}, _LOG_NORMAL_RULE),
    Refused("a mean beside Fixed", _LENGTHS, _FIXED | {"mean": 3}, _LOG_NORMAL_RULE),
    Refused(
        "a log-normal that does not exist",
        _LENGTHS,
        {"mean": 10, "p99": 141},
        "p99 may be at most 14 times mean: no LogNormal is more skewed than 15",
    ),
    Refused("Gamma without burstiness", "schedules.0.workload.arrivals", {"process": "Gamma"}, _GAMMA),
    Refused("burstiness beside Poisson", "schedules.0.workload.arrivals", {"burstinessPercent": 50}, _GAMMA),
    Refused("Closed without users", "schedules.0.workload.arrivals", {"process": "Closed"}, _CLOSED),
    Refused("users beside Constant", _ARRIVALS, {"process": "Constant", "users": 3}, _CLOSED),
    Refused("Trace without a trace", "workload.traceRef", None, _TRACE),
    Refused("a trace beside Poisson", _ARRIVALS, {"process": "Poisson"}, _TRACE),
    Refused("prompts alone of a trace", _LENGTHS, _OF_TRACE, "lengths of Trace are pairs: declare both or neither"),
    Refused("a class of a trace", "workload.classes.0.promptTokens", _OF_TRACE, _DECLARED),
    Refused("a think time beside Trace", "workload.arrivals.thinkTime", "1s", "only Closed has a thinkTime"),
    Refused("a time axis beside Poisson", "schedules.0.workload.arrivals", {"traceTime": "RealTime"}, _TRACE_TIME),
    Refused("Empirical without bins", _LENGTHS, {"distribution": "Empirical"}, _EMPIRICAL),
    Refused("bins beside Fixed", _LENGTHS, _HISTOGRAM | _FIXED, _EMPIRICAL),
    Refused(
        "a bin upside down",
        _LENGTHS,
        {"distribution": "Empirical", "bins": [{"min": 2, "max": 1, "weight": 1}]},
        "min must not be above max",
    ),
    Refused(
        "weights that do not add up",
        "workload.classes.1.weightPercent",
        31,
        "weightPercent of all classes must add up to 100",
    ),
    Refused("a source that is none", "workload.prompts", {}, _ONE_SOURCE),
    Refused(
        "two sources",
        "workload.prompts",
        {"configMapRef": {"name": "a"}, "persistentVolumeClaim": {"name": "b"}},
        _ONE_SOURCE,
    ),
    Refused("a window of no length", "probe.window.duration", "0h", "must be more than 0s"),
    Refused("a recovery of no length", "probe.ladder.recovery", "0ms", "must be more than 0s"),
    Refused("a stage of no length", "probe.ladder.maxStageDuration", "0s", "must be more than 0s"),
    Refused("no time to measure", "probe.budget.maxMeasureDuration", "0s", "must be more than 0s"),
    Refused("no time to start", "probe.budget.startTimeout", "0s", "must be more than 0s"),
    Refused("no time to verify", "updatePolicy.verifyFor", "0s", "must be more than 0s"),
    Refused("runs without pause", "retune.minInterval", "0.9ns", "must be more than 0s"),
    Refused("a schedule of no length", "schedules.0.duration", "0s", "must be more than 0s"),
    Refused("a probe target twice", "probe.allow", ["Clone", "Clone"], "Duplicate value"),
    Refused("a trigger twice", "retune.on", ["Image", "Image"], "Duplicate value"),
    Refused(
        "an on without quotes", "retune", {"true": ["Image"]}, 'YAML takes a bare on for true: write "on" in quotes'
    ),
    Refused("a kept label twice", "probe.clone.keep", ["a", "a"], "Duplicate value"),
    Refused("a class twice", "workload.classes.1.name", "chat", "Duplicate value"),
)

BROKEN_SHAPES = (
    Refused("no target", "targetRef", None, "required"),
    Refused("a target without a name", "targetRef.name", None, "required"),
    Refused("a field that does not exist", "slo.p95TTFT", "1s", "p95TTFT"),
    Refused("a nested field that does not exist", "probe.ladder.steps", 3, "steps"),
    Refused("a float", "probe.budget.maxRestarts", 1.5, "maxRestarts"),
    Refused("a number for a duration", "slo.p99TTFT", 500, "p99TTFT"),
    Refused("a duration without a unit", "slo.p99TTFT", "500", "p99TTFT"),
    Refused("a negative duration", "slo.p99TTFT", "-1s", "p99TTFT"),
    Refused("an unknown mode", "updatePolicy.mode", "Auto", "mode"),
    Refused("an unknown probe target", "probe.allow", ["Live"], "allow"),
    Refused("no probe target", "probe.allow", [], "allow"),
    Refused("a port out of range", "endpoint.port", 65536, "port"),
    Refused("a root path without a slash", "endpoint.rootPath", "llm", "rootPath"),
    Refused("a window that is not cron", "probe.window.schedule", "daily", "schedule"),
    Refused("an address that is not HTTP", "metrics.prometheusRef.url", "ftp://prometheus", "url"),
    Refused("a history of nothing", "runHistoryLimit", 0, "runHistoryLimit"),
    Refused("a name beyond bounds", "targetRef.name", "x" * 254, "name"),
    Refused("too many classes", "workload.classes", [{"name": str(i)} for i in range(9)], "classes"),
)
