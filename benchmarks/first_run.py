"""`python -m benchmarks.first_run`: tells both stories and writes docs/results/first-run.md.

The last line of output is one JSON object with the numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from e2e import first_run
from e2e.cluster import ClusterSpec
from e2e.first_run import Story
from e2e.lab import GPU_PRODUCT, Object, open_lab
from e2e.realvllm import first_run as real_first_run
from e2e.realvllm.environment import prepare
from e2e.realvllm.first_run import RealStory

TARGET = Path(__file__).parent.parent / "docs/results/first-run.md"


def main() -> int:
    """0 when every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_run", description=__doc__)
    parser.add_argument("--simulated-only", action="store_true", help="leave real vLLM out, and the page unwritten")
    arguments = parser.parse_args()
    started = time.monotonic()
    lab = open_lab(ClusterSpec(nodes=1, gpus_per_node=4, gpu_product=GPU_PRODUCT))
    ready_s = time.monotonic() - started
    numbers: dict[str, Any] = {}
    real: RealStory | None = None
    if not arguments.simulated_only:
        # Real vLLM first: it wants a machine that nothing has disturbed.
        prepare()
        real = real_first_run.tell(lab, lab.namespace("first-run-vllm", labels={}))
        lab.delete_namespace("first-run-vllm")
        numbers["vllm"] = {"kept": real.kept, "attempts": real.outcomes, "promised_rps": real.promised_rps}
    story = first_run.tell(lab, lab.namespace("first-run"))
    lab.delete_namespace("first-run")
    numbers["simulated"] = _simulated_numbers(story)
    if real is not None:
        TARGET.write_text("\n".join(_page(story, real, ready_s)) + "\n")
    kept = all(told["kept"] for told in numbers.values())
    print(json.dumps(numbers))
    return 0 if kept else 1


def _simulated_numbers(story: Story) -> dict[str, Any]:
    assert story.after is not None  # the story ends with it
    return {
        "kept": story.after.p99_ttft_s <= story.ttft_s and story.after.p99_tpot_s <= story.tpot_s,
        "p99_tpot_before_ms": round(1e3 * story.before.p99_tpot_s, 1),
        "p99_tpot_after_ms": round(1e3 * story.after.p99_tpot_s, 1),
        "p99_tpot_target_ms": round(1e3 * story.tpot_s, 1),
        "elapsed_s": round(story.elapsed_s),
    }


def _page(story: Story, real: RealStory, ready_s: float) -> Iterator[str]:
    assert story.after is not None  # the story ends with it
    day = datetime.now(UTC).date().isoformat()
    yield "# First run"
    yield ""
    yield f"Written by `python -m benchmarks.first_run` on {day}, on two shared cores without a GPU. The speed of such"
    yield "machines drifts by a third within minutes, so read ratios, not milliseconds: targets are shares of what the"
    yield "present setting did in the same run."
    yield ""
    yield "## Simulated engine, two replicas"
    yield ""
    yield f"Open-loop Poisson load of {first_run.RATE:.0f} requests/s at each replica, {story.before.requests} requests"
    yield "in all, from outside the operator, before and after one `kubectl apply`."
    yield ""
    yield "| | P99 TTFT ms | P99 TPOT ms | failed |"
    yield "| --- | --- | --- | --- |"
    yield f"| target | {1e3 * story.ttft_s:.0f} | {1e3 * story.tpot_s:.1f} | 0 |"
    for when, seen in (("before: 256/8192", story.before), (f"after: {_setting(story.profile)}", story.after)):
        yield f"| {when} | {1e3 * seen.p99_ttft_s:.0f} | {1e3 * seen.p99_tpot_s:.1f} | {seen.failed} |"
    yield ""
    yield f"The cluster with kneekeeper in it was ready after {ready_s:.0f} s (0: it ran already; builds are kept)."
    yield f"From applying the profile until its setting was proven, rolled out and verified: {story.tuned_s:.0f} s."
    yield "What `kubectl get sp` said, a line for each change:"
    yield ""
    yield "```"
    yield from story.lines
    yield "```"
    yield ""
    yield from _run(story.run)
    yield ""
    yield "## Real vLLM (CPU), one replica"
    yield ""
    yield f"Attempts: {', '.join(real.outcomes)}. Targets: P99 TTFT {real.targets.p99_ttft_ms} ms, P99 TPOT"
    yield f"{real.targets.p99_tpot_ms} ms, from {len(real.calibration)} runs of the present setting in the same run"
    yield f"({real.discarded_calibrations} earlier calibrations disagreed or overloaded it, and were discarded)."
    yield f"vLLM's own `bench serve` then offered the promised {real.promised_rps:.2f} requests/s:"
    yield ""
    yield "| setting | P99 TTFT ms | P99 TPOT ms | requests/s | failed | within targets |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for judged in real.judged:
        result, name = judged.result, f"{judged.settings.max_num_seqs}/{judged.settings.max_num_batched_tokens}"
        inside = "yes" if judged.kept else "no"
        cells = (
            f"{result.p99_ttft_ms:.0f}",
            f"{result.p99_tpot_ms:.1f}",
            f"{result.achieved_rps:.2f}",
            result.failed,
            inside,
        )
        yield f"| {name} | {' | '.join(str(cell) for cell in cells)} |"
    yield ""
    yield from _run(real.run)


def _run(run: Object) -> Iterator[str]:
    status = run["status"]
    fit, cost = status.get("fit", {}), status["cost"]
    knee = fit.get("knee")
    if knee:
        yield f"Knee: {knee['concurrency']} concurrent requests (90% interval {knee['lower']} to {knee['upper']})."
    yield f"{status['message']} Engine starts: {cost['engineStarts']}; measured for {cost['measureSeconds']} s."
    yield ""
    yield "| stage | users | offered /s | requests | X /s | P50 TTFT | P99 TTFT | P50 TPOT | P99 TPOT | verdict |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    columns = ("name", "users", "offeredRequestsPerSecond", "requests", "requestsPerSecond")
    latencies = ("p50TTFT", "p99TTFT", "p50TPOT", "p99TPOT", "verdict")
    for stage in status["stages"]:
        yield "| " + " | ".join(str(stage.get(column, "")) for column in (*columns, *latencies)) + " |"


def _setting(profile: Object) -> str:
    setting = profile["status"]["applied"]["setting"]
    return f"{setting['maxNumSeqs']}/{setting['maxNumBatchedTokens']}"


if __name__ == "__main__":
    sys.exit(main())
