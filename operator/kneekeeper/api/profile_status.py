"""Status of a `ServingProfile`: what is known of the workload, what is recommended, what was applied."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from kneekeeper.api.model import ApiModel, Condition, Setting, Timestamp
from kneekeeper.api.quantities import Duration, Quantity


class BoundBy(StrEnum):
    """What keeps the choice from going higher."""

    KNEE = "Knee"
    TPOT = "TPOT"
    TTFT = "TTFT"
    KV_CACHE = "KVCache"
    BOUND = "Bound"


class EngineFacts(ApiModel):
    """The workload as Preflight read it."""

    container: str = Field(max_length=63)
    image: str = Field(max_length=1024)
    model: str = Field(max_length=1024)
    gpu_product: str = Field(default="", max_length=253)
    replicas: int = Field(ge=0)
    max_num_seqs: int | None = Field(default=None, description="As set in the arguments; absent is default.")
    max_num_batched_tokens: int | None = None
    fingerprint: str = Field(
        max_length=64, description="Hash of all that a setting depends on, without the two limits."
    )


class ContainerWords(ApiModel):
    """The words of the container exactly as they stood, so that they can be restored."""

    command: list[str] | None = Field(default=None, max_length=512)
    args: list[str] | None = Field(default=None, max_length=512)


class KneeEstimate(ApiModel):
    """The knee with its 90% interval, in concurrent requests of one replica."""

    concurrency: Quantity
    lower: Quantity
    upper: Quantity


class Recommendation(ApiModel):
    """A setting that was certified under open-loop load."""

    setting: Setting
    hash: str = Field(max_length=64, description="Approve with the annotation kneekeeper.io/approve=<hash>.")
    run: str = Field(max_length=253, description="The TuningRun with the evidence.")
    fingerprint: str = Field(max_length=64, description="The engine that it holds for.")
    sustainable_requests_per_second: Quantity
    promised_requests_per_second: Quantity
    bound_by: BoundBy
    p99_ttft: Duration | None = None
    p99_tpot: Duration | None = None
    improvement: str = Field(
        max_length=256, description="Against the present setting, or that the present breaks the SLO."
    )
    improvement_percent: int | None = Field(
        default=None, description="Lower bound; absent where the present setting breaks the SLO."
    )
    present_breaks_slo: bool = False
    patch: str = Field(max_length=16_384, description="The change as a command to run.")


class RolloutStep(StrEnum):
    WRITE = "Write"
    PROGRESS = "Progress"
    VERIFY = "Verify"
    WITHDRAW = "Withdraw"
    WITHDRAWING = "Withdrawing"


class Rollout(ApiModel):
    """A change of the workload that is under way. It is stored before the first write."""

    step: RolloutStep
    setting: Setting
    before: ContainerWords
    after: ContainerWords
    started_at: Timestamp
    verify_from: Timestamp | None = None
    violation_share_before: Quantity | None = None
    cause: str = Field(default="", max_length=1024, description="Why it is being withdrawn.")


class Applied(ApiModel):
    """What kneekeeper last wrote, and what stood there before."""

    setting: Setting
    before: ContainerWords
    after: ContainerWords
    at: Timestamp
    verified: bool = Field(description="False where verification stayed undecided.")


class Rejected(ApiModel):
    """A setting that was rolled back; not tried again for the same engine."""

    setting: Setting
    fingerprint: str = Field(max_length=64)
    cause: str = Field(max_length=1024)
    at: Timestamp


class ReplicaStatus(ApiModel):
    """One serving pod against its knee."""

    pod: str = Field(max_length=253)
    node: str = Field(default="", max_length=253)
    gpu_product: str = Field(default="", max_length=253)
    knee_concurrency: Quantity | None = None
    capacity_requests_per_second: Quantity | None = None
    running: int | None = Field(default=None, description="Requests in the batch now.")
    waiting: int | None = None
    headroom_percent: int | None = None


class RunReference(ApiModel):
    """A run of this profile, newest last."""

    name: str = Field(max_length=253)
    trigger: str = Field(max_length=32)
    fingerprint: str = Field(max_length=64)
    generation: int
    outcome: str = Field(default="", max_length=32)
    finished_at: Timestamp | None = None


class ServingProfileStatus(ApiModel):
    """All of it can be rebuilt but `applied`, `rollout` and `rejected`."""

    observed_generation: int = 0
    stage: str = Field(
        default="", max_length=64, description="For people: what happens now. Nothing reads it."
    )
    conditions: list[Condition] = Field(default=[], max_length=16)
    engine: EngineFacts | None = None
    recommendation: Recommendation | None = None
    knee: KneeEstimate | None = None
    rollout: Rollout | None = None
    applied: Applied | None = None
    rejected: list[Rejected] = Field(default=[], max_length=10)
    active_run: str | None = Field(default=None, max_length=253)
    handled_retune: str | None = Field(
        default=None, max_length=253, description="The last value of kneekeeper.io/retune that was acted on."
    )
    runs: list[RunReference] = Field(default=[], max_length=100)
    replicas: list[ReplicaStatus] = Field(default=[], max_length=512)
