"""The pod that a run measures, and the replica that it borrowed for it."""

from __future__ import annotations

from pydantic import Field

from kneekeeper.api.model import ApiModel, Count, Setting, Timestamp


class CloneState(ApiModel):
    """The pod under test. A clone's name is derived from the run and `start`; InPlace it is a serving pod."""

    start: Count = Field(ge=1, description="Counts engine starts of this run; InPlace the pods that were measured.")
    setting: Setting = Field(description="What it was started with.")
    since: Timestamp = Field(description="When it was created.")
    ready_at: Timestamp | None = Field(default=None, description="When the engine answered.")
    kv_cache_tokens: Count | None = Field(default=None, description="Tokens that fit into its KV cache.")
    serving_pod: str = Field(
        default="", max_length=63, description="InPlace: the uid of the serving pod; empty while it is looked for."
    )
    serving_pod_restarts: Count = Field(
        default=0, description="InPlace: how often its engine had been restarted before the run."
    )


class CloneFailure(ApiModel):
    """A setting that did not start."""

    setting: Setting = Field(description="What it was started with.")
    kind: str = Field(max_length=64, description="What went wrong, in one CamelCase word.")
    message: str = Field(max_length=1024, description="The line of the log that tells it.")


class Borrowed(ApiModel):
    """A replica taken from the workload; stored before it is taken."""

    replicas_before: Count = Field(ge=2, description="What the workload is scaled back to.")
    generation: Count | None = Field(
        default=None, description="The workload's before; another one shows that it was scaled, by whomever."
    )
    taken_at: Timestamp = Field(description="When it was scaled down.")
    unseen_since: Timestamp | None = Field(
        default=None, description="Since when production's metrics could not be read; absent while they are."
    )
    returned_at: Timestamp | None = Field(default=None, description="When it was scaled back.")
