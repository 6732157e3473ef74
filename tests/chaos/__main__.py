"""`python -m tests.chaos`: lives under random faults. The last line is JSON: `runs`, `wrong`, `left_behind`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

import uvloop

from e2e.cluster import control_plane
from tests.chaos.campaign import at_random, each_fault_in_turn, every_death, every_kill
from tests.chaos.page import page


def main() -> int:
    """0 when every life ended as it should."""
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="lives under random faults")
    parser.add_argument("--seed", type=int, default=0, help="of the first life; the next ones count on")
    parser.add_argument("--in-turn", action="store_true", help="also: each fault at every kind of call, in turn")
    parser.add_argument("--kills", action="store_true", help="also: kill the operator at each single write")
    parser.add_argument("--deaths", action="store_true", help="also: agents, engines and fenced operators that die")
    parser.add_argument("--page", type=Path, help="write the table to this page")
    wanted = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with control_plane(is_lean=True) as server:
        report = uvloop.run(at_random(server.kubeconfig, range(wanted.seed, wanted.seed + wanted.runs)))
        if wanted.in_turn:
            report = report.joined(uvloop.run(each_fault_in_turn(server.kubeconfig)))
        if wanted.kills:
            report = report.joined(uvloop.run(every_kill(server.kubeconfig)))
        if wanted.deaths:
            report = report.joined(uvloop.run(every_death(server.kubeconfig)))
    if wanted.page is not None:
        wanted.page.write_text(page(report, wanted.seed, wanted.runs), encoding="utf-8")
    for line in report.told:
        print(line)
    print(json.dumps(report.summary()))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
