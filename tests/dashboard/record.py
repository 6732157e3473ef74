"""`python -m tests.dashboard.record`: write the objects that the dashboard's tests and screenshots show.

They are what the state machines store in the tests' small cluster: a setting that was applied, a recommendation that
was made anew after an upgrade of the image, and a run that is still climbing. Numbers are those of that cluster's
engine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from kneekeeper.api.model import API_VERSION
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import RunStep, TuningRun
from tests.unit.plan.world import PROFILE_SPEC, World

RECORDED = Path(__file__).parent / "recorded"
SPEC = PROFILE_SPEC | {
    "slo": {"p99TTFT": "2s", "p99TPOT": "60ms"},
    "parameters": {"maxNumSeqs": {"min": 4, "max": 128}, "maxNumBatchedTokens": {"min": 256, "max": 4096}},
    "retune": {"minInterval": "1m"},
}


def main() -> None:
    """One file for each."""
    applied = World(spec=SPEC, spare_gpus=1)
    applied.settle()
    _write("applied", "prod", applied)
    upgraded = World(spec=SPEC | {"updatePolicy": {"mode": "Recommend"}}, spare_gpus=1)
    upgraded.settle()
    upgraded.image = "vllm/vllm-openai:v0.33.0"
    upgraded.run_for(900)
    upgraded.settle()
    _write("upgraded", "support", upgraded)
    climbing = World(spec=SPEC, spare_gpus=1)
    climbing.run_until(lambda w: bool(w.runs) and w.last_run.status.step is RunStep.RAMP and len(_stages(w)) >= 7)
    _write("climbing", "staging", climbing)


def _stages(world: World) -> list[Any]:
    return list(world.last_run.status.stages)


def _write(name: str, namespace: str, world: World) -> None:
    objects = [
        _resource("ServingProfile", world.profile),
        *(_resource("TuningRun", run) for run in world.runs.values()),
    ]
    for each in objects:
        each["metadata"]["namespace"] = namespace
    # Through JSON: YAML then has no anchors for what several objects share.
    text = yaml.safe_dump_all(json.loads(json.dumps(objects)), sort_keys=False, width=120)
    (RECORDED / f"{name}.yaml").write_text(text)


def _resource(kind: str, model: ServingProfile | TuningRun) -> dict[str, Any]:
    resource = model.to_resource()
    return {"apiVersion": API_VERSION, "kind": kind, **resource, "metadata": dict(resource["metadata"])}


if __name__ == "__main__":
    main()
