"""`python -m tests.soak`: weeks of many profiles. The last line is JSON; `--page` writes the table."""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import uvloop

from e2e.cluster import control_plane
from tests.soak.calendar import DAY_S
from tests.soak.page import page
from tests.soak.report import Report, report
from tests.soak.soak import begun
from tests.soak.usage import Day


def main() -> int:
    """0 where nothing leaked and what was promised was kept."""
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("--days", type=float, default=14.0)
    parser.add_argument("--profiles", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of what happens")
    parser.add_argument("--minutes", type=float, default=math.inf, help="real ones; what is not lived by then is left")
    parser.add_argument("--page", type=Path, help="write the table to this page")
    wanted = parser.parse_args()
    began = time.monotonic()
    with control_plane(is_lean=True) as server, tempfile.TemporaryDirectory() as folder:
        found = uvloop.run(_lived(server.kubeconfig, Path(folder), wanted))
    line = json.dumps(found.summary() | {"real_minutes": round((time.monotonic() - began) / 60, 1)})
    if wanted.page is not None:
        wanted.page.write_text(page(found, wanted.seed, line), encoding="utf-8")
    for bug in dict.fromkeys(found.bugs):
        print(bug)
    print(line)
    return 0 if found.is_good else 1


async def _lived(kubeconfig: Path, folder: Path, wanted: argparse.Namespace) -> Report:
    async with begun(kubeconfig, folder, wanted.profiles) as soak:
        await soak.lived(wanted.days, wanted.seed, _tell, 60 * wanted.minutes)
        days = round(soak.clock.now_s / DAY_S, 2)
        return report(soak, days, left=await soak.end())


def _tell(day: Day) -> None:
    print(json.dumps(asdict(day)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
