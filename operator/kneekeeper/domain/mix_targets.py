"""One SLO that stands for those of a mix where stages under all of it are looked at as one."""

from __future__ import annotations

from collections.abc import Sequence

from kneekeeper.api.stage import Slo, StageClass


def loosest_slo(slo: Slo, classes: Sequence[StageClass]) -> Slo:
    """What no class forgives: a ramp goes on until that is missed. `slo` where there is no mix.

    Tokens of all classes come from the same steps, so the strictest TPOT binds all of them. First tokens and
    whole requests differ with the prompts and answers: a time that is too long for chat may do for documents.
    Certification judges each class by its own SLO.
    """
    if not classes:
        return slo
    tpots = [kind.slo.tpot_s for kind in classes if kind.slo.tpot_s is not None]
    return Slo(
        ttft_s=_loosest([kind.slo.ttft_s for kind in classes]),
        tpot_s=min(tpots, default=None),
        e2e_s=_loosest([kind.slo.e2e_s for kind in classes]),
    )


def _loosest(targets: Sequence[float | None]) -> float | None:
    """None where a class has no target at all."""
    known = [target for target in targets if target is not None]
    return max(known) if len(known) == len(targets) else None
