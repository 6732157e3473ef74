"""A change of the workload, what stood there before, and what was taken back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from kneekeeper.api.model import ApiModel, Count, ObjectName, Setting, Timestamp
from kneekeeper.api.quantities import Quantity

MOST_WORDS = 512
LONGEST_WORD_CHARACTERS = 16_384
ContainerWord = Annotated[str, Field(max_length=LONGEST_WORD_CHARACTERS)]


class ContainerWords(ApiModel):
    """The words of the container exactly as they stood, so that they can be restored."""

    command: list[ContainerWord] | None = Field(
        default=None, max_length=MOST_WORDS, description="Absent where the image's entry point holds."
    )
    args: list[ContainerWord] | None = Field(
        default=None, max_length=MOST_WORDS, description="Absent where the image's command holds."
    )


class FieldChange(ApiModel):
    """One field of the workload, or of an object that its engine's words come from, before and after a write."""

    api_version: str = Field(max_length=253, description="The object's apiVersion.")
    kind: str = Field(max_length=63, description="The object's kind.")
    name: ObjectName = Field(description="The object's name.")
    path: str = Field(max_length=1024, description="The field as a JSON pointer.")
    before: str | None = Field(
        default=None, max_length=16_384, description="The value that stood there, as JSON; absent where none did."
    )
    after: str | None = Field(
        default=None, max_length=16_384, description="The value that is written, as JSON; absent to take it away."
    )


class RolloutStep(StrEnum):
    WRITE = "Write"
    PROGRESS = "Progress"
    VERIFY = "Verify"
    WITHDRAW = "Withdraw"
    WITHDRAWING = "Withdrawing"


class ObservedMisses(ApiModel):
    """Requests of production that missed the SLO, as far as histograms tell."""

    share_lower: Quantity = Field(description="At least this share of them, from 0 to 1.")
    share_upper: Quantity = Field(description="At most this share.")
    requests: Count = Field(description="Requests that were seen.")
    replica_requests_per_second: Quantity | None = Field(
        default=None, description="The load of one replica meanwhile; absent where it is not known."
    )


class Rollout(ApiModel):
    """A change of the workload that is under way. It is stored before the first write."""

    step: RolloutStep = Field(description="What is being done.")
    setting: Setting = Field(description="What is being applied.")
    before: ContainerWords = Field(description="What stood there before.")
    after: ContainerWords = Field(description="What is being written.")
    fields: list[FieldChange] = Field(
        default=[], max_length=24, description="What is written instead of the words, or with them."
    )
    started_at: Timestamp = Field(description="When it was decided.")
    verify_from: Timestamp | None = Field(default=None, description="When all replicas ran the new words.")
    misses_before: ObservedMisses | None = Field(default=None, description="What production missed before.")
    not_worse: bool = Field(
        default=False, description="Whether new pods were shown to be no worse than old ones that served beside them."
    )
    generation: Count = Field(default=0, description="The workload's generation when the write was decided.")
    cause: str = Field(default="", max_length=1024, description="Why it is being withdrawn.")


class Applied(ApiModel):
    """What kneekeeper last wrote, and what stood there before."""

    setting: Setting = Field(description="What was applied.")
    before: ContainerWords = Field(description="What stood there before.")
    after: ContainerWords = Field(description="What was written.")
    fields: list[FieldChange] = Field(
        default=[], max_length=24, description="What was written instead of the words, or with them."
    )
    at: Timestamp = Field(description="When verification ended.")
    verified: bool = Field(
        description="False where verification stayed undecided, as with too little traffic; condition Applied tells."
    )
    reverts: Count = Field(default=0, description="How often in a row others put the old words back.")


class Rejected(ApiModel):
    """A setting that was rolled back; not tried again for the same engine."""

    setting: Setting = Field(description="What was rolled back.")
    fingerprint: str = Field(max_length=64, description="The engine that it failed for.")
    cause: str = Field(max_length=1024, description="Why, for people.")
    at: Timestamp = Field(description="When it was rolled back.")
