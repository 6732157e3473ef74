"""What a rule is, and how rules are written: a function of the facts that names what it misses."""

from __future__ import annotations

from collections.abc import Callable

from kneekeeper.domain.diagnose.facts import Facts
from kneekeeper.domain.diagnose.finding import Evidence, Finding, Reason, Unit, Unjudged

Answer = Finding | Unjudged | None
Rule = Callable[[Facts], Answer]

NO_RUN = "a finished TuningRun"
"""Named as missing where a rule needs what a run measures."""

GPU_UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"


def unjudged(facts: Facts, reason: Reason, *names: str) -> Unjudged:
    """The rule's answer where it cannot look: those of `names` that are not there, or all of them."""
    absent = tuple(
        name for name in names if name in facts.window.missing or (name == NO_RUN and facts.obs.measured is None)
    )
    return Unjudged(reason, absent or names)


def requests(name: str, value: float) -> Evidence:
    return Evidence(name, value, Unit.REQUESTS)


def seconds(name: str, value: float) -> Evidence:
    return Evidence(name, value, Unit.SECONDS)


def share(name: str, value: float) -> Evidence:
    return Evidence(name, value, Unit.SHARE)


def tokens_per_s(name: str, value: float) -> Evidence:
    return Evidence(name, value, Unit.TOKENS_PER_SECOND)


def tokens(name: str, value: float) -> Evidence:
    return Evidence(name, value, Unit.TOKENS)
