"""`python -m benchmarks.passive.choice`: what settings are worth that are predicted from production alone.

Replicas of the simulated fleet, whose engines have another law than the fit's, with noise and drift. The truth of a
setting is the highest rate at which the machine itself, without noise, holds the targets. The last line is one JSON
object: of the replicas `predicted` got a prediction; `recommended` of them another setting, of which `worse` are truly
below 95% of the present one's capacity; `sustainable_median` and `sustainable_most` are predicted rates over true ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.passive.day import DAY_S, WINDOW_S, log_room, record_of
from benchmarks.passive.fleet import SETTING, TRAFFIC, Probes, Replica, fleet, live
from kneekeeper.api.model import Setting
from kneekeeper.api.run_plan import SettingBounds
from kneekeeper.api.stage import Slo
from kneekeeper.domain.engines import valid_sequence_grid, valid_token_grid
from kneekeeper.domain.production_choice import NotEnough, Prediction, evidence_of, predict
from kneekeeper.domain.production_record import EngineRecord
from kneekeeper.domain.twin.surface import Surface
from kneekeeper.domain.twin.traffic import TwinTraffic

REPLICAS = 24
TRUE_REQUESTS = 4000
TARGETS = ((2.0, 3.0), (1.4, 3.0), (1.7, 30.0))
"""P99 TPOT over the step of a lone request, and P99 TTFT in seconds: where users may wait, a cap carries more."""
WORSE = 0.95
BOUNDS = SettingBounds(
    lowest=Setting(max_num_seqs=8, max_num_batched_tokens=512),
    highest=SETTING,
)


@dataclass(frozen=True)
class Outcome:
    """One replica and target: the prediction, and true rates in requests/s."""

    prediction: Prediction
    true_chosen: float
    true_present: float

    @property
    def recommends(self) -> bool:
        return self.prediction.chosen.sustainable >= 1.05 * self.prediction.present_per_s


def outcome(replica: Replica, record: EngineRecord, slo: Slo) -> Outcome | NotEnough:
    evidence = evidence_of([record])
    if isinstance(evidence, NotEnough):
        return evidence
    traffic = replace(TRAFFIC[replica.traffic], kv_cache_tokens=evidence.kv_cache_tokens)
    grids = valid_sequence_grid(SETTING.max_num_seqs), valid_token_grid(SETTING.max_num_batched_tokens)
    found = predict(evidence, traffic, [slo], BOUNDS, SETTING, *grids)
    if isinstance(found, NotEnough):
        return found
    return Outcome(
        found, true_rate(replica, traffic, slo, found.chosen.setting), true_rate(replica, traffic, slo, SETTING)
    )


def true_rate(replica: Replica, traffic: TwinTraffic, slo: Slo, setting: Setting) -> float:
    """Of this machine under this traffic, requests/s."""
    kv = replace(traffic, kv_cache_tokens=replica.machine.engine.kv_tokens(setting))
    surface = Surface.drawn(kv, [slo], [replica.machine.law()], TRUE_REQUESTS)
    return surface.highest_rate(kv.limits(setting))


def main() -> int:
    parser = argparse.ArgumentParser(description="Settings predicted from production alone against the truth.")
    parser.add_argument("--replicas", type=int, default=REPLICAS)
    parser.add_argument("--seed", type=int, default=4)
    arguments = parser.parse_args()
    room = log_room()
    probes, outcomes, silent = Probes(room), [], 0
    for drawn in fleet(arguments.replicas, arguments.seed):
        replica = replace(drawn, reach=max(drawn.reach, 0.75))  # traffic that may tell something
        probed = probes.of(replica.machine.engine, replica.traffic)
        if probed is None:
            continue
        served = live(replica, probed, room)
        scraped = replica.scraping.times(DAY_S, np.random.default_rng([replica.seed, 2]))
        record = record_of(served, "chat-0", scraped, DAY_S, WINDOW_S)
        for times, ttft_s in TARGETS:
            slo = Slo(ttft_s=ttft_s, tpot_s=times * replica.machine.law().base_s)
            told = outcome(replica, record, slo)
            if isinstance(told, NotEnough):
                silent += 1
                print(f"{replica.name}: {told.message}", flush=True)
                continue
            outcomes.append(told)
            chosen = told.prediction.chosen
            print(
                f"{replica.name}: {chosen.setting} predicted {chosen.sustainable:.3g}, true {told.true_chosen:.3g}; "
                f"present predicted {told.prediction.present_per_s:.3g}, true {told.true_present:.3g}"
                f"{'; recommended' if told.recommends else ''}",
                flush=True,
            )
    recommended = [each for each in outcomes if each.recommends]
    ratios = [each.prediction.chosen.sustainable / max(each.true_chosen, 1e-9) for each in outcomes]
    result = {
        "predicted": len(outcomes),
        "silent": silent,
        "recommended": len(recommended),
        "worse": sum(each.true_chosen < WORSE * each.true_present for each in recommended),
        "sustainable_median": round(float(np.median(ratios)), 3) if ratios else None,
        "sustainable_most": round(max(ratios), 3) if ratios else None,
        "seed": arguments.seed,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
