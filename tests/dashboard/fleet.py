"""A folder with a fleet of 500 replicas, made of the recorded profiles: for tests and screenshots."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import yaml

RECORDED = Path(__file__).parent / "recorded"
LARGE = ("prod", "chat-large")
"""A profile that has all replicas alone."""

REPLICAS = 500
PROFILES = 100
_TEAMS = ("search", "support", "coding", "batch", "translate")
_MODELS = ("llama-3.1-8b", "qwen3-32b", "mistral-small", "gpt-oss-20b")
_PRODUCTS = ("NVIDIA-L4", "NVIDIA-H100", "NVIDIA-A100")

Object = dict[str, Any]


def recorded(name: str) -> list[Object]:
    """The objects of one recorded file; a profile first."""
    return list(yaml.safe_load_all((RECORDED / f"{name}.yaml").read_text()))


def write_fleet(folder: Path) -> None:
    """The recorded objects, a profile of 500 replicas, and 100 profiles that share 500 others."""
    rng = random.Random(5)
    profile, *runs = recorded("applied")
    upgraded, *measured = recorded("upgraded")
    for each in (profile, upgraded):
        each["status"]["replicas"] = [_replica(rng, "chat", number, load=0.7) for number in range(8)]
        each["status"]["engine"]["replicas"] = 8
    upgraded["status"]["findings"] = [_finding("chat-3")]
    upgraded["status"] |= _learned(upgraded["status"]["replicas"])
    objects: list[Object] = [profile, *runs, *_events(profile, runs), upgraded, *measured, *recorded("climbing")]
    objects += _copied(profile, runs, *LARGE, rng, REPLICAS)
    for number in range(PROFILES):
        team = _TEAMS[number % len(_TEAMS)]
        made, *_ = _copied(profile, [], f"team-{team}", f"{team}-{number:03}", rng, REPLICAS // PROFILES)
        made["status"]["engine"] |= {"model": rng.choice(_MODELS), "gpuProduct": rng.choice(_PRODUCTS)}
        if number % 17 == 3:
            _refuse(made)
        if number % 23 == 5:
            made["spec"]["suspend"] = True
        objects.append(made)
    replace(folder / "fleet.json", json.dumps({"items": objects}))


def change_loads(folder: Path) -> None:
    """Every replica of the fleet works at another load than before, and every profile has another state."""
    rng = random.Random(6)
    found = json.loads((folder / "fleet.json").read_text().replace("BelowTheKnee", "StillBelow"))
    for each in found["items"]:
        for replica in each.get("status", {}).get("replicas", []):
            replica["running"] = replica.get("running", 0) + rng.randint(1, 4)
            replica["headroomPercent"] = replica.get("headroomPercent", 0) - rng.randint(3, 12)
    replace(folder / "fleet.json", json.dumps(found))


def replace(file: Path, text: str) -> None:
    """All of it at once: the server looks at the folder all the time."""
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(file)


def _copied(
    profile: Object, runs: list[Object], namespace: str, name: str, rng: random.Random, replicas: int
) -> list[Object]:
    made = copy.deepcopy(profile)
    made["metadata"] |= {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}"}
    made["spec"]["targetRef"]["name"] = name
    load = rng.uniform(0.3, 0.95)
    made["status"]["engine"]["replicas"] = replicas
    made["status"]["replicas"] = [_replica(rng, name, number, load) for number in range(replicas)]
    own = copy.deepcopy(runs)
    for run in own:
        run["metadata"] |= {"namespace": namespace, "name": f"{name}-{run['metadata']['name']}"}
        run["spec"]["profileName"] = name
    made["status"]["runs"] = [
        {**reference, "name": f"{name}-{reference['name']}"} for reference in made["status"]["runs"]
    ]
    return [made, *own]


def _replica(rng: random.Random, name: str, number: int, load: float) -> Object:
    knee = rng.uniform(30.0, 38.0)
    share = max(0.05, rng.gauss(load, 0.12))
    now = round(knee * share)
    return {
        "pod": f"{name}-{number:03}",
        "node": f"node-{number // 8 + 1}",
        "gpuProduct": "NVIDIA-L4",
        "kneeConcurrency": f"{knee:.4g}",
        "capacityRequestsPerSecond": "15.21",
        "running": now,
        "waiting": max(0, round(now - knee)),
        "headroomPercent": round(100 * (1 - share)),
    }


SLOW = "chat-003"


def _learned(replicas: list[Object]) -> Object:
    """What production's metrics told: knees of their own, one slow replica, the fleet as a whole, the traffic."""
    slow = "Its steps take 31% longer than its peers' at the same load: look at its GPU's clocks."
    for each in replicas[:6]:
        knee = float(each["kneeConcurrency"])
        each |= {"kneeLower": f"{0.9 * knee:.4g}", "kneeUpper": f"{1.15 * knee:.4g}", "kneeSource": "Production"}
        each |= {"speedPercent": 100, "requestsPerSecond": "9.5", "message": "Its traffic reached 33 requests."}
    replicas[3] |= {"outlier": "Slow", "speedPercent": 76, "message": slow}
    for each in replicas[6:]:
        each |= {"kneeSource": "Run", "kneeAtLeast": "21", "notObserved": "TrafficTooLow", "message": "It lies above."}
    lengths = {"distribution": "Empirical", "bins": [{"min": 1, "max": 500, "weight": 3}]}
    hours = [
        {"hour": hour, "requestsPerSecond": f"{3 + hour % 12}", "promptTokensMean": "612", "outputTokensMean": "203"}
        for hour in range(24)
    ]
    return {
        "scale": {
            "replicas": 8,
            "neededReplicas": 9,
            "peakRequestsPerSecond": "84.2",
            "capacityRequestsPerSecond": "80.1",
            "imbalancePercent": 131,
            "message": "The peak was 84.2 requests/s; 8 replicas carry 80.1: 9 replicas are needed.",
        },
        "observedWorkload": {
            "workload": {
                "promptTokens": lengths,
                "outputTokens": lengths,
                "arrivals": {"process": "Gamma", "burstinessPercent": 40},
                "prefixCacheHitPercent": 17,
            },
            "confidence": "High",
            "requests": 51_234,
            "seen": "24h",
            "until": "2026-01-01T00:20:00Z",
            "requestsPerSecond": "8.31",
            "peakRequestsPerSecond": "14.2",
            "concurrency": "187",
            "promptP99Lower": 1000,
            "promptP99Upper": 2000,
            "outputP99Lower": 500,
            "outputP99Upper": 1000,
            "hours": hours,
        },
    }


def _refuse(profile: Object) -> None:
    status = profile["status"]
    status["stage"] = "NoSpareGPU"
    for condition in status["conditions"]:
        if condition["type"] in ("Ready", "Recommended"):
            condition |= {
                "status": "False",
                "reason": "NoSpareGPU",
                "message": "No node has a free GPU for a clone. Add BorrowReplica to spec.probe.allow, or free a GPU.",
            }


def _finding(pod: str) -> Object:
    return {
        "reason": "KVCacheFull",
        "phase": "Present",
        "looks": 4,
        "pod": pod,
        "pods": 2,
        "confidence": "High",
        "message": "Requests are preempted since the KV cache is full.",
        "nextStep": "Lower max-num-seqs, or give the engine more KV cache.",
        "evidence": [{"name": "preemptions", "value": "0.4", "unit": "/s"}, {"name": "cache in use", "value": "0.99"}],
        "since": "2026-01-01T00:30:00Z",
    }


def _events(profile: Object, runs: list[Object]) -> list[Object]:
    told = [
        ("ServingProfile", profile, "RunStarted", "A TuningRun was started: the profile is new."),
        ("TuningRun", runs[0], "Certified", runs[0]["status"]["message"]),
        ("ServingProfile", profile, "Applied", "The workload declares the certified setting."),
    ]
    return [
        {
            "kind": "Event",
            "metadata": {"name": f"event-{number}", "namespace": profile["metadata"]["namespace"]},
            "eventTime": f"2026-01-01T00:{10 * number:02}:00.000000Z",
            "type": "Normal",
            "reason": reason,
            "note": note,
            "regarding": {"kind": kind, **{key: about["metadata"][key] for key in ("namespace", "name")}},
        }
        for number, (kind, about, reason, note) in enumerate(told)
    ]
