"""The main job on real vLLM: calibrate, apply one profile, then let a client that is not ours judge.

Targets come from the present (bad) setting in the same run. After the tuning vLLM's own `bench serve` runs at the
promised rate against bad, good, bad, good in turn, so that drift of the machine cannot pass for a difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from e2e.first_run import watch
from e2e.lab import Lab, Object, condition
from e2e.profiles import profile
from e2e.realvllm import bench_client, scenario
from e2e.realvllm.bench_client import BenchResult
from e2e.realvllm.environment import RealVllm, prepared
from e2e.realvllm.manifests import PodPlacement, deployment
from e2e.realvllm.scenario import LatencyTargets
from e2e.realvllm.server import EngineSettings

NAME = "chat"
PORT = 8000
READY_S = 300.0
ATTEMPTS = 3
CALIBRATIONS = 2
CALIBRATION_ATTEMPTS = 4

Say = Callable[[str], None]


@dataclass(frozen=True)
class Judged:
    """One run of the independent client."""

    settings: EngineSettings
    result: BenchResult
    kept: bool


@dataclass
class RealStory:
    """What was seen, in order; `outcomes` lists every attempt of the tuning."""

    targets: LatencyTargets
    calibration: list[BenchResult]
    discarded_calibrations: int = 0
    outcomes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    chosen: EngineSettings | None = None
    promised_rps: float = 0.0
    judged: list[Judged] = field(default_factory=list)
    run: Object = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Good inside and bad outside the targets, in both rounds."""
        return len(self.judged) == 4 and all(j.kept == (j.settings == self.chosen) for j in self.judged)


def tell(lab: Lab, namespace: str, say: Say = print) -> RealStory:
    """Raises TimeoutError or AssertionError when the tuning does not end with a setting in force."""
    engine = prepared()
    say(f"Real vLLM starts with {_name(scenario.BAD)}.")
    address = _serve(lab, engine, namespace, scenario.BAD)
    story = _calibrate(engine, address, say)
    found = _tune(lab, namespace, story, say)
    story.run = lab.get("tuningrun", found["status"]["recommendation"]["run"], namespace)
    setting = found["status"]["applied"]["setting"]
    story.chosen = EngineSettings(setting["maxNumSeqs"], setting["maxNumBatchedTokens"])
    story.promised_rps = float(found["status"]["recommendation"]["promisedRequestsPerSecond"])
    say(f"{_name(story.chosen)} is in force; promised are {story.promised_rps:.2f} requests/s.")
    lab.kubectl("-n", namespace, "delete", "sp", NAME, "--timeout=60s")
    for number, settings in enumerate((scenario.BAD, story.chosen) * 2):
        address = _serve(lab, engine, namespace, settings)
        bench_client.run(engine, address, scenario.warm_up(), seed=500 + number)
        result = bench_client.run(engine, address, scenario.judged(story.promised_rps), seed=600 + number)
        story.judged.append(Judged(settings, result, story.targets.are_met_by(result)))
        say(f"{_name(settings)}: {_told(result)}: {'inside' if story.judged[-1].kept else 'outside'} the targets.")
    return story


def _calibrate(engine: RealVllm, address: str, say: Say) -> RealStory:
    """Targets from runs that agree. Raises AssertionError on a machine too restless to have any."""
    bench_client.run(engine, address, scenario.warm_up(), seed=1)
    fraction = scenario.CALIBRATION_FRACTION
    for attempt in range(CALIBRATION_ATTEMPTS):
        seed = 2 + 100 * attempt
        capacity = bench_client.run(engine, address, scenario.burst(), seed=seed).achieved_rps
        load = scenario.judged(round(fraction * capacity, 2))
        runs = [bench_client.run(engine, address, load, seed=seed + 1 + n) for n in range(CALIBRATIONS)]
        for run in runs:
            say(f"Calibration at {load.rate_rps:.2f} requests/s: {_told(run)}.")
        if scenario.agree(runs):
            targets = scenario.targets_from(runs)
            say(f"Targets: P99 TTFT {targets.p99_ttft_ms} ms, P99 TPOT {targets.p99_tpot_ms} ms.")
            return RealStory(targets, runs, discarded_calibrations=attempt)
        if scenario.keeps_up(runs):
            say("The two disagree: something else uses the machine. Calibrated anew.")
        else:
            fraction *= scenario.CALIBRATION_STEP
            say("The server did not keep up. Calibrated anew at a lower rate.")
    raise AssertionError(
        f"{CALIBRATION_ATTEMPTS} calibrations did not count: run this when nothing else uses the machine"
    )


def _tune(lab: Lab, namespace: str, story: RealStory, say: Say) -> Object:
    """One `kubectl apply`; an Inconclusive run is repeated by the retune annotation, at most twice."""
    lab.apply(_profile(namespace, story.targets))
    for attempt in range(1, ATTEMPTS + 1):
        try:
            found = watch(lab, namespace, NAME, story.lines, say)
        except AssertionError as error:
            run = lab.get("sp", NAME, namespace)["status"]["runs"][-1]
            story.outcomes.append(f"{run['outcome']}: {run['cause']}")
            say(f"Attempt {attempt} ended {story.outcomes[-1]}.")
            if run["outcome"] != "Inconclusive" or attempt == ATTEMPTS:
                raise AssertionError(f"{story.outcomes}: {error}") from error
            lab.kubectl("-n", namespace, "annotate", "sp", NAME, f"kneekeeper.io/retune={attempt}", "--overwrite")
            lab.wait(
                "the next run",
                lambda: lab.get("sp", NAME, namespace)["status"].get("activeRun"),
                timeout_s=60,
            )
        else:
            story.outcomes.append("Certified")
            return found
    raise AssertionError("unreachable: the last attempt returns or raises")


def _profile(namespace: str, targets: LatencyTargets) -> Object:
    lengths: dict[str, Any] = {
        "promptTokens": _uniform(scenario.PROMPT_TOKENS),
        "outputTokens": _uniform(scenario.OUTPUT_TOKENS),
    }
    return profile(
        namespace,
        ttft_s=targets.p99_ttft_ms / 1000,
        tpot_s=targets.p99_tpot_ms / 1000,
        name=NAME,
        workload=lengths,
        parameters={"maxNumSeqs": {"min": 2, "max": 64}, "maxNumBatchedTokens": {"min": 64, "max": 8192}},
    )


def _uniform(bounds: tuple[int, int]) -> dict[str, Any]:
    return {"distribution": "Uniform", "min": bounds[0], "max": bounds[1]}


def _serve(lab: Lab, engine: RealVllm, namespace: str, settings: EngineSettings) -> str:
    """The address of a freshly started pod with this setting."""
    lab.apply(deployment(engine, namespace=namespace, name=NAME, settings=settings, placement=PodPlacement(gpus=1)))

    def address() -> str:
        pods = lab.find("pods", namespace, f"app={NAME}")
        ready = [
            pod
            for pod in pods
            if not pod["metadata"].get("deletionTimestamp")
            and condition(pod, "Ready")["status"] == "True"
            and json.dumps(str(settings.max_num_batched_tokens)) in json.dumps(pod["spec"]["containers"][0])
        ]
        return f"http://{ready[0]['status']['podIP']}:{PORT}" if len(pods) == len(ready) == 1 else ""

    found: str = lab.wait(f"real vLLM with {_name(settings)}", address, timeout_s=READY_S)
    return found


def _name(settings: EngineSettings) -> str:
    return f"{settings.max_num_seqs}/{settings.max_num_batched_tokens}"


def _told(seen: BenchResult) -> str:
    return (
        f"P99 TTFT {seen.p99_ttft_ms:.0f} ms, P99 TPOT {seen.p99_tpot_ms:.1f} ms at {seen.achieved_rps:.2f} requests/s"
    )
