"""An upgrade that makes the present setting invalid: seen from the first new pod, before the old ones are gone.

A new image may accept less than the old one did. Its log often names the limit; then the setting that starts is
known without a guess. It is not certified: the run that follows the new image settles the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from kneekeeper.api.model import Setting
from kneekeeper.api.profile_status import ServingProfileStatus
from kneekeeper.api.rollout import Rollout, RolloutStep
from kneekeeper.api.serving_profile import Parameters, UpdateMode
from kneekeeper.domain.actions import ProfileAction, WriteWords
from kneekeeper.domain.arguments import Refusal
from kneekeeper.domain.engines import valid_sequence_grid
from kneekeeper.domain.observation import PodView, ProfileObservation
from kneekeeper.domain.plan.conditions import ConditionType, ProfileConditions
from kneekeeper.domain.plan.writing import fields_with, may_write_for
from kneekeeper.domain.startup_failures import StartupFailure, classify
from kneekeeper.domain.target import MOST_TOKENS, Target, words_with
from kneekeeper.domain.targets.fields import NotWritable


@dataclass(frozen=True)
class FailedUpgrade:
    """A new pod that did not start while old ones serve; `fix` is what its log says would."""

    pod: str
    failure: StartupFailure
    fix: Setting | None

    @property
    def advice(self) -> str:
        if self.fix is None:
            return self.failure.next_step
        flags = f"--max-num-seqs={self.fix.max_num_seqs} --max-num-batched-tokens={self.fix.max_num_batched_tokens}"
        return f"Set {flags}, which the log says would start; the old pods serve until then."


def failed_upgrade(obs: ProfileObservation, target: Target) -> FailedUpgrade | None:
    """The first failure of the present template beside ready pods of another image; None where there is none."""
    pods, container = obs.pods or (), target.container
    failed = next((pod for pod in pods if _failed(pod) and pod.image == container.image), None)
    if failed is None or failed.words != container.words:
        return None
    if not any(pod.ready and (pod.image, pod.image_id) != (failed.image, failed.image_id) for pod in pods):
        return None
    failure = classify(failed.log_tail)
    fix = setting_that_starts(failure, target.present)
    fits = fix is not None and _inside(fix, obs.profile.spec.parameters)
    return FailedUpgrade(failed.name, failure, fix if fits else None)


def setting_that_starts(failure: StartupFailure, present: Setting) -> Setting | None:
    """The nearest setting that the log allows; None where it names no number, or none that would change anything."""
    sequences, tokens = present.max_num_seqs, present.max_num_batched_tokens
    if failure.limit_hint is not None and 1 <= failure.limit_hint < sequences:
        sequences = valid_sequence_grid(failure.limit_hint)[-1]
    if failure.least_tokens is not None and tokens < failure.least_tokens <= MOST_TOKENS:
        tokens = failure.least_tokens
    found = Setting(max_num_seqs=sequences, max_num_batched_tokens=tokens)
    return None if found == present else found


def mend(
    obs: ProfileObservation, status: ServingProfileStatus, conditions: ProfileConditions, target: Target
) -> tuple[ServingProfileStatus, tuple[ProfileAction, ...]]:
    """In Apply mode the fix is written at once, once: a rollout as any other, taken back if it fails too."""
    spec, found = obs.profile.spec, failed_upgrade(obs, target)
    if found is None or found.fix is None or spec.suspend or spec.update_policy.mode != UpdateMode.APPLY:
        return status, ()
    if target.workload.live is not None:
        return status, ()  # it was started with more than what is in force: `profile_live` takes that back first
    tried = any(r.setting == found.fix and r.fingerprint == target.fingerprint for r in status.rejected)
    after = words_with(target.container, found.fix)
    barred = not may_write_for(target.workload.owner, spec.update_policy.method)
    if tried or barred or isinstance(after, Refusal):
        return status, ()
    fields = fields_with(target, found.fix, spec.update_policy.method)
    if isinstance(fields, NotWritable):
        return status, ()
    rollout = Rollout(
        step=RolloutStep.WRITE,
        setting=found.fix,
        before=target.container.words,
        after=after,
        fields=list(fields),
        started_at=obs.now,
        generation=target.workload.generation,
    )
    conditions.false(ConditionType.APPLIED, "RollingOut", f"Writes {found.fix}: {found.failure.summary}")
    write = WriteWords(target.container.name, rollout.before, after, fields)
    return status.with_changes(rollout=rollout, watched=None), (write,)


def _failed(pod: PodView) -> bool:
    """Once is enough: the log of a start that vLLM refused says so as well as that of the tenth."""
    return not pod.ready and not pod.deleting and pod.log_tail != "" and (pod.exit_code is not None or pod.restarts > 0)


def _inside(setting: Setting, parameters: Parameters) -> bool:
    pairs = (
        (parameters.max_num_seqs, setting.max_num_seqs),
        (parameters.max_num_batched_tokens, setting.max_num_batched_tokens),
    )
    return all((b.min is None or b.min <= v) and (b.max is None or v <= b.max) for b, v in pairs)
