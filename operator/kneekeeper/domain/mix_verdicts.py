"""The verdict on a stage under a mix of kinds of requests: each class is held to its own SLO.

The mix passes when every class passes, and fails as soon as one fails. No correction is needed for the number
of classes: a wrong PASS of the whole needs a wrong PASS of the class that fails (an intersection-union test,
Berger, Technometrics 24, 1982). What takes time to show in the queue is counted in all requests, so the floor
below which nothing passes is shared out by weight; what a class needs to be decided the test itself knows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kneekeeper.api.stage import StageSpec
from kneekeeper.api.tuning_run import ClassSummary, Verdict
from kneekeeper.domain.certify import CertifyResult, Claim, SequentialTest, verdict_of
from kneekeeper.domain.critical_load import critical_load_doubt
from kneekeeper.domain.samples import Bools, Ints, StageData
from kneekeeper.domain.stats import quantile

CLASS_REQUESTS = 1000
"""What a certification plans for its smallest class: twice what a class without a miss takes to pass."""

MOST_REQUESTS = 20_000
"""Of a certification, however small its smallest class is."""


def certify_requests(weights: Sequence[int], least: int) -> int:
    """How many requests a certification of a mix with these weights plans; `least` without a mix."""
    if not weights:
        return least
    return max(least, min(MOST_REQUESTS, math.ceil(CLASS_REQUESTS * sum(weights) / min(weights))))


def class_floors(spec: StageSpec, floor: int) -> tuple[int, ...]:
    """The least requests of each class to pass, of `floor` of all."""
    total = sum(kind.weight for kind in spec.classes)
    return tuple(math.ceil(floor * kind.weight / total) for kind in spec.classes) or (floor,)


class MixTest:
    """One sequential test for each class, or a single one without a mix. Feed it as `SequentialTest`."""

    def __init__(self, spec: StageSpec, floor: int) -> None:
        self._tests = [SequentialTest(min_pass_requests=least) for least in class_floors(spec, floor)]

    def update(self, misses: Bools, request_class: Ints) -> None:
        """Take the next requests, with the class of each (no classes without a mix)."""
        for index, test in enumerate(self._tests):
            test.update((misses[request_class == index] if len(self._tests) > 1 else misses).tolist())

    @property
    def requests(self) -> int:
        return sum(test.requests for test in self._tests)

    @property
    def verdict(self) -> Verdict | None:
        """PASS or FAIL once decided, else None."""
        return _joint([test.verdict for test in self._tests])


def _joint(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    return Verdict.PASS if all(verdict is Verdict.PASS for verdict in verdicts) else None


def verdict_of_mix(
    data: StageData, spec: StageSpec, floor: int, *, unsteady: str = "", claim: Claim = Claim.OFFERED
) -> tuple[CertifyResult, tuple[CertifyResult, ...]]:
    """The verdict on a stage, and the verdicts on its classes (none without a mix).

    A stage that does not exclude critical load does not pass either. The joint result carries the message of the
    class that decides it, with its name in front.
    """
    unsteady = unsteady or critical_load_doubt(data.after_warmup(), spec.arrivals)
    floors = class_floors(spec, floor)
    if not spec.classes:
        return verdict_of(data, spec.slo, floor, unsteady=unsteady, claim=claim), ()
    results = tuple(
        verdict_of(data.of_class(index), kind.slo, floors[index], unsteady=unsteady, claim=claim)
        for index, kind in enumerate(spec.classes)
    )
    worst = max(range(len(results)), key=lambda index: (_ORDER[results[index].verdict], results[index].bounds.upper))
    decisive = results[worst]
    joint = CertifyResult(
        verdict=_joint([result.verdict for result in results]) or Verdict.INCONCLUSIVE,
        requests=sum(result.requests for result in results),
        misses=sum(result.misses for result in results),
        bounds=decisive.bounds,
        message=f"Class {spec.classes[worst].name}: {decisive.message}",
        requests_to_decide=max(result.requests_to_decide for result in results),
    )
    return joint, results


_ORDER = {Verdict.PASS: 0, Verdict.INCONCLUSIVE: 1, Verdict.FAIL: 2}


def summarise_classes(data: StageData, spec: StageSpec, results: Sequence[CertifyResult]) -> list[ClassSummary]:
    """Each class in numbers, with its verdict where there are `results`; empty without a mix."""
    summaries = []
    for index, kind in enumerate(spec.classes):
        rows = data.of_class(index)
        summaries.append(
            ClassSummary(
                name=kind.name,
                requests=len(rows),
                misses=int(rows.misses(kind.slo).sum()),
                p99_ttft=quantile(rows.ttft_s[rows.ok], 0.99),
                p99_tpot=quantile(rows.tpot_s[rows.ok], 0.99),
                p99_e2e=quantile(rows.e2e_s[rows.ok], 0.99),
                verdict=results[index].verdict if results else None,
            )
        )
    return summaries
