"""`python -m benchmarks.diagnosis`: the last line is one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.diagnosis.score import FLEET, Half, judge


def main() -> int:
    parser = argparse.ArgumentParser(description="Scores the diagnosis on a simulated fleet with known truth.")
    parser.add_argument("--half", choices=[half.name.lower() for half in Half], default="scoring")
    parser.add_argument("--only", default="", help="part of a scenario's name")
    parser.add_argument("--out", type=Path, help="write each scenario's answer as JSON lines")
    arguments = parser.parse_args()
    begun_s = time.process_time()
    fleet = [scenario for scenario in FLEET if arguments.only in scenario.name]
    wanted = missed = false_scenarios = false_findings = 0
    kinds: Counter[str] = Counter()
    lines = []
    for judged in judge(fleet, Half[arguments.half.upper()]):
        kinds[judged.scenario.kind] += 1
        wanted += judged.wanted
        missed += len(judged.missed)
        false_findings += len(judged.false)
        false_scenarios += bool(judged.false)
        found = ", ".join(sorted(judged.diagnosis.reasons)) or "-"
        told = [f"MISSED {', '.join(judged.missed)}"] if judged.missed else []
        told += [f"FALSE {', '.join(judged.false)}"] if judged.false else []
        print(f"{judged.scenario.kind}: {judged.scenario.name}: {found} {'; '.join(told)}".rstrip(), flush=True)
        if arguments.only:
            for finding in judged.diagnosis.findings:
                print(f"    {finding.message}")
        lines.append(
            json.dumps(
                {
                    "scenario": judged.scenario.name,
                    "kind": judged.scenario.kind,
                    "expected": sorted(judged.scenario.expected),
                    "found": sorted(judged.diagnosis.reasons),
                    "missed": judged.missed,
                    "false": judged.false,
                }
            )
        )
    if arguments.out is not None:
        arguments.out.write_text("\n".join(lines) + "\n")
    result = {
        "scenarios": len(fleet),
        "hits": wanted - missed,
        "misses": missed,
        "false_alarms": false_findings,
        "wanted": wanted,
        "miss_share": round(missed / max(1, wanted), 4),
        "false_alarm_share": round(false_scenarios / max(1, len(fleet)), 4),
        "kinds": dict(kinds),
        "half": arguments.half,
        "cpu_s": round(time.process_time() - begun_s, 1),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
