"""The files of examples/ as they are applied by tests: unchanged, but for their size.

A test machine has four pretended GPUs and two cores. So its engines are simulated ones, ten times slower than the GPUs
that the examples are written for, which a busy machine hardly lengthens, and their texts are short. `RESIZED` names
every field that differs, and `tests/contract/test_examples.py` holds this module to it. What is decided (modes,
methods, targets, owners, consents, windows, schedules) stays as it is written.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from e2e.simulated import Simulated
from kneekeeper.api.quantities import format_duration, parse_duration

Object = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "examples"

SLOWER = 10
"""Times the targets: steps take 60 ms instead of some 6."""
SHORTER = 40
"""Prompts and answers have a fortieth of the tokens, workers are a quarter: a run takes minutes and not hours."""
FEWER_WORKERS = 4
FEWER_SEQUENCES = 16
"""The limits that an example's engine starts with, so that what is searched is small as well."""
FEWER_BATCHED_TOKENS = 16
SMALLEST_BUDGET = 512

BOUNDS: Object = {"maxNumSeqs": {"min": 2, "max": 32}, "maxNumBatchedTokens": {"min": 512, "max": 2048}}
LADDER: Object = {
    "maxConcurrency": 32,
    "recovery": "500ms",
    "controlTolerancePercent": 100,
    "maxStageDuration": "30s",
}
"""As in `e2e.wide`: what else the machine does is no reason to give up."""
VERIFY_FOR = "10s"
NOW = "* * * * *"
"""In place of a time of the day: hours that have just begun."""

RESIZED = (
    r"metadata/namespace",
    r"spec/destination/namespace",
    r"spec/slo/\w+",
    r"spec/workload/classes/\d+/slo/\w+",
    r"spec/(schedules/\d+/)?workload/(classes/\d+/)?(promptTokens|outputTokens)/(mean|p99|value|min|max)",
    r"spec/(schedules/\d+/)?workload/(classes/\d+/)?slo/\w+",
    r"spec/workload/arrivals/users",
    r"spec/parameters/.*",
    r"spec/probe/ladder/.*",
    r"spec/probe/window/schedule",
    r"spec/schedules/\d+/cron",
    r"spec/updatePolicy/verifyFor",
    # Of pods and of the arguments of engines.
    r"spec/predictor/model/args/\d+",
    r"spec/predictor/model/resources/.*",
    r"spec/(template/spec/)?containers/\d+/(image|imagePullPolicy|command|args|env|resources|readinessProbe|securityContext)(/.*)?",
    r"spec/template/spec/(automountServiceAccountToken|terminationGracePeriodSeconds|securityContext)(/.*)?",
    r"spec/(strategy|progressDeadlineSeconds)(/.*)?",
    r"spec/template/metadata/annotations/.*",
)
"""Paths that may differ from the file."""


def written(name: str) -> list[Object]:
    """The objects as the file has them."""
    return [each for each in yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")) if each]


def fitted(name: str, namespace: str, engine: Simulated) -> list[Object]:
    """The file's objects for this namespace; containers that run vLLM run `engine`'s program instead."""
    found = copy.deepcopy(written(name))
    for each in found:
        each["metadata"]["namespace"] = namespace
        _FITS.get(each["kind"], _leave)(each, engine)
        if "destination" in each.get("spec", {}):
            each["spec"]["destination"]["namespace"] = namespace
    return found


def one(objects: list[Object], kind: str) -> Object:
    """The only object of a kind."""
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def differences(name: str, engine: Simulated) -> Iterator[str]:
    """Paths at which `fitted` is not what is written."""
    for before, after in zip(written(name), fitted(name, "test", engine), strict=True):
        yield from _differences(before, after, "")


def _differences(before: object, after: object, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            yield from _differences(before.get(key, {}), after.get(key, {}), f"{path}/{key}".lstrip("/"))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, f"{path}/{index}")
    elif isinstance(after, dict) and after and before == {}:
        for key, value in after.items():
            yield from _differences({}, value, f"{path}/{key}")
    elif before != after:
        yield path


def _leave(_: Object, __: Simulated) -> None:
    pass


def _fit_profile(profile: Object, _: Simulated) -> None:
    spec = profile["spec"]
    _fit_workload(spec.get("workload", {}))
    _fit_slo(spec)
    spec["parameters"] = BOUNDS
    probe = spec.setdefault("probe", {})
    probe["ladder"] = LADDER
    if "window" in probe:
        probe["window"]["schedule"] = NOW
    for entry in spec.get("schedules", []):
        entry["cron"] = NOW
        _fit_workload(entry.get("workload", {}))
    if spec.get("updatePolicy", {}).get("mode") == "Apply":
        spec["updatePolicy"]["verifyFor"] = VERIFY_FOR


def _fit_slo(holder: Object) -> None:
    for name, text in holder.get("slo", {}).items():
        if name.startswith("p99"):
            holder["slo"][name] = format_duration(SLOWER * parse_duration(text))


def _fit_workload(workload: Object) -> None:
    for each in (workload, *workload.get("classes", [])):
        _fit_slo(each)
        for lengths in (each[name] for name in ("promptTokens", "outputTokens") if name in each):
            for name in lengths.keys() & {"mean", "p99", "value", "min", "max"}:
                lengths[name] = max(2, round(lengths[name] / SHORTER))
    if "users" in workload.get("arrivals", {}):
        workload["arrivals"]["users"] //= FEWER_WORKERS


def _fit_words(words: list[str]) -> list[str]:
    smaller: dict[str, Callable[[int], int]] = {
        "max-num-seqs": lambda value: value // FEWER_SEQUENCES,
        "max-num-batched-tokens": lambda value: max(SMALLEST_BUDGET, value // FEWER_BATCHED_TOKENS),
    }

    def fit(word: str) -> str:
        found = re.fullmatch(r"--([\w-]+)=(\d+)", word)
        return word if found is None or found[1] not in smaller else f"--{found[1]}={smaller[found[1]](int(found[2]))}"

    return [fit(word) for word in words]


def _fit_deployment(deployment: Object, engine: Simulated) -> None:
    """What a simulated engine's pods need under restricted pod security, around the file's own words and volumes."""
    model = engine.deployment("test")["spec"]
    spec = deployment["spec"]
    spec |= {"strategy": model["strategy"], "progressDeadlineSeconds": model["progressDeadlineSeconds"]}
    pod, template = spec["template"]["spec"], spec["template"]
    template["metadata"]["annotations"] = model["template"]["metadata"]["annotations"]
    pod |= {key: value for key, value in model["template"]["spec"].items() if key != "containers"}
    pod["containers"] = [_container(each, engine) for each in pod["containers"]]


def _fit_runtime(runtime: Object, engine: Simulated) -> None:
    runtime["spec"]["containers"] = [_container(each, engine) for each in runtime["spec"]["containers"]]


def _fit_service(service: Object, engine: Simulated) -> None:
    model = service["spec"]["predictor"]["model"]
    model["args"] = _fit_words(model["args"])
    model["resources"] = engine.container()["resources"]


def _container(container: Object, engine: Simulated) -> Object:
    ours = engine.container()
    kept = {key: container[key] for key in ("name", "args", "ports", "volumeMounts") if key in container}
    return ours | kept | {"args": _fit_words(kept["args"]), "readinessProbe": _ready_at(kept["ports"], ours)}


def _ready_at(ports: list[Object], ours: Object) -> Object:
    return {**ours["readinessProbe"], "httpGet": {"path": "/health", "port": ports[0]["containerPort"]}}


_FITS = {
    "ServingProfile": _fit_profile,
    "Deployment": _fit_deployment,
    "ServingRuntime": _fit_runtime,
    "InferenceService": _fit_service,
}
