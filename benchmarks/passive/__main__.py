"""`python -m benchmarks.passive`: the last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict

from benchmarks.passive.fleet import fleet
from benchmarks.passive.score import judge, score

REPLICAS = 160
SCORING_SEED = 2
"""Seed 1 is for development."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Passive knees of a simulated fleet against those of a ramp.")
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--seed", type=int, default=SCORING_SEED)
    arguments = parser.parse_args()
    begun_s = time.process_time()
    judged = []
    for one in judge(fleet(arguments.replicas, arguments.seed)):
        judged.append(one)
        knee, told = one.answer.knee, ""
        if knee is not None:
            told = f"{knee.estimate:.0f} ({knee.lower:.0f} to {knee.upper:.0f}), off by {one.error:.0%}"
            told += "" if one.covered else ", NOT COVERED"
        else:
            told = f"{one.answer.not_observed}, above {one.answer.at_least:.0f}"
        prior = f", run of {one.replica.run_of}" if one.replica.run_of else ""
        print(f"{one.replica.name}{prior}: knee {one.knee:.0f}, reached {one.reach:.0%}: {told}", flush=True)
    result = {key: round(value, 4) for key, value in asdict(score(judged)).items()}
    print(json.dumps(result | {"seed": arguments.seed, "cpu_s": round(time.process_time() - begun_s, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
