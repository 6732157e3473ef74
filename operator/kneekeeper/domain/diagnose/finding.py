"""What a diagnosis says: findings with evidence, what does not apply, and what could not be judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """One for each thing that can be wrong."""

    TOO_LITTLE_LOAD = "TooLittleLoad"
    CLIENT_BOUND = "ClientBound"
    CPU_BOUND = "CPUBound"
    LIMITS_TOO_SMALL = "LimitsTooSmall"
    SATURATED_COMPUTE = "SaturatedCompute"
    PREFILL_JITTER = "PrefillJitter"
    PAST_THE_KNEE = "PastTheKnee"
    LIMITS_CONTRADICT = "LimitsContradict"
    LITTLE_GAIN = "LittleGain"
    ARRIVALS_ABOVE_SERVICE = "ArrivalsAboveService"
    THROUGHPUT_FALLS = "ThroughputFalls"
    KV_PRESSURE = "KVPressure"
    WORKLOAD_DIFFERS = "WorkloadDiffers"
    TAIL_MISSES = "TailMisses"
    BUCKETS_HIDE_P99 = "BucketsHideP99"
    OUTSIDE_ENGINE = "OutsideEngine"


class Confidence(StrEnum):
    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


class Unit(StrEnum):
    """How an evidence's value is read."""

    COUNT = ""
    SECONDS = "s"
    SHARE = "share"
    PER_SECOND = "/s"
    TOKENS_PER_SECOND = "tokens/s"
    TOKENS = "tokens"
    REQUESTS = "requests"


@dataclass(frozen=True)
class Evidence:
    """One number that the finding rests on."""

    name: str
    value: float
    unit: str
    """One of Unit; a later version may have others."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `missing` names metrics that would have made it surer."""

    reason: Reason
    confidence: Confidence
    message: str
    next_step: str
    evidence: tuple[Evidence, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unjudged:
    """A rule that could not look, since `missing` was not there. Never taken for all is well."""

    reason: Reason
    missing: tuple[str, ...]


class Boundary(StrEnum):
    """Where the method of knees and P99 targets does not apply."""

    OFFLINE_BATCH = "OfflineBatch"
    LOW_RATE = "LowRate"
    SHORT_OUTPUTS = "ShortOutputs"
    REPLICA_TOTALS = "ReplicaTotals"


@dataclass(frozen=True)
class NotApplicable:
    """Why some rules were not asked, and what to look at instead."""

    boundary: Boundary
    why: str
    instead: str
    skipped: tuple[Reason, ...]


@dataclass(frozen=True)
class Diagnosis:
    """All that was found in one window."""

    findings: tuple[Finding, ...]
    not_applicable: tuple[NotApplicable, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()

    @property
    def reasons(self) -> frozenset[Reason]:
        return frozenset(finding.reason for finding in self.findings)
