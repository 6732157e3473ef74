"""What a run was started for, resolved and frozen before anything is started."""

from __future__ import annotations

from pydantic import Field

from kneekeeper.api.model import ApiModel, Count, Setting
from kneekeeper.api.quantities import Duration, Quantity
from kneekeeper.api.serving_profile import LiveChanges, ProbeTarget, Scheme, ServingProfileSpec
from kneekeeper.api.workload import LengthBin


class SettingBounds(ApiModel):
    """The rectangle in which a setting is searched."""

    lowest: Setting = Field(description="The smallest of both limits.")
    highest: Setting = Field(description="The largest of both limits.")


MOST_TRACE_BINS = 96


class TraceFacts(ApiModel):
    """What the load agent found in the trace; the trace itself stays with the agent."""

    requests: Count = Field(ge=1, description="Requests that can be sent.")
    left_out: Count = Field(default=0, description="Requests without a prompt or an answer: they had failed.")
    duration: Duration = Field(description="From the first request to the last one.")
    gap_variation: Quantity = Field(description="Squared coefficient of variation of the gaps; 1 is Poisson.")
    prompt_tokens: list[LengthBin] = Field(min_length=1, max_length=MOST_TRACE_BINS, description="Prompt lengths.")
    output_tokens: list[LengthBin] = Field(min_length=1, max_length=MOST_TRACE_BINS, description="Answer lengths.")


class SourceFacts(ApiModel):
    """What the load agent found in the files that it mounts, in numbers."""

    trace: TraceFacts | None = Field(default=None, description="Of spec.workload.traceRef.")
    prompts: Count | None = Field(default=None, description="Prompts in spec.workload.prompts.")


class RunPlan(ApiModel):
    """What the run was started for, resolved and frozen by Preflight."""

    profile_generation: Count = Field(description="The profile's generation.")
    profile_spec: ServingProfileSpec = Field(
        description="The profile's spec as it was; with the learned workload where it declares none."
    )
    workload_learned: bool = Field(
        default=False, description="Whether the workload was learned from production, since none was declared."
    )
    fingerprint: str = Field(max_length=64, description="The engine that is measured.")
    image: str = Field(max_length=1024, description="The engine's image.")
    image_digest: str = Field(default="", max_length=128, description="Its digest; empty where it is not known.")
    engine_model: str = Field(max_length=1024, description="What the engine loads.")
    gpu_product: str = Field(default="", max_length=253, description="GPU product that the clone is bound to.")
    container: str = Field(max_length=63, description="The vLLM container.")
    model: str = Field(max_length=1024, description="The name that requests carry.")
    port: int = Field(ge=1, le=65535, description="The engine's port.")
    scheme: Scheme = Field(default=Scheme.HTTP, description="http or https.")
    root_path: str = Field(default="", max_length=253, description="Prefix of all paths.")
    max_model_len: Count | None = Field(default=None, description="Longest prompt and answer together, in tokens.")
    gpus_per_replica: Count = Field(default=0, description="GPUs of one pod.")
    present: Setting = Field(description="What the workload runs with.")
    bounds: SettingBounds = Field(description="Where a setting is searched.")
    live_start: Setting | None = Field(
        default=None,
        description="With liveChanges: what engines are started with, here as in production; settings are set under it "
        "without a restart.",
    )
    probe_target: ProbeTarget = Field(description="How the engine is measured.")
    unrepresentative: str = Field(
        default="", max_length=256, description="Why drawn prompts misjudge this engine; empty where they do not."
    )
    draft_acceptance_percent: Quantity | None = Field(
        default=None, description="Share of draft tokens that production accepts; absent without any."
    )
    token: str = Field(
        max_length=16, description="Goes into the names of the children and into every seed; not a secret."
    )

    def measures_the_same_as(self, spec: ServingProfileSpec) -> bool:
        """Whether a run under `spec` would be this run: what only concerns applying may differ."""
        return measured_part(self.asked_spec) == measured_part(spec)

    @property
    def asked_spec(self) -> ServingProfileSpec:
        """The spec as its user wrote it: what is learned changes all the time and asks for nothing new."""
        return self.profile_spec.with_changes(workload=None) if self.workload_learned else self.profile_spec


def measured_part(spec: ServingProfileSpec) -> tuple[ApiModel | str | None, ...]:
    """What of a profile a run depends on; the rest concerns only what is done with its result."""
    live = (LiveChanges.ALLOWED,) if spec.update_policy.live_changes is LiveChanges.ALLOWED else ()
    return (
        *live,
        spec.target_ref,
        spec.slo,
        spec.workload,
        spec.objective,
        spec.parameters,
        spec.probe,
        spec.endpoint,
    )
