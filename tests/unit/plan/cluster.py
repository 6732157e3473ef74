"""A small cluster for the state machines: a workload, its pods, a clone, an agent and an injected clock.

It carries out the plans' actions as a cluster would and answers with what a cluster would show.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from kneekeeper.api.probe import LiveTuning
from kneekeeper.api.serving_profile import ServingProfileSpec
from kneekeeper.api.tuning_run import TuningRun, TuningRunSpec
from kneekeeper.domain import actions as act
from kneekeeper.domain.target import present_setting
from tests.unit.plan.circumstances import Clone
from tests.unit.plan.engine_law import answer
from tests.unit.plan.sight import Sight


class Cluster(Sight):
    """Everything outside the operator."""

    # What the user or others do.

    def delete_run(self, name: str) -> None:
        metadata = {**self.runs[name].metadata, "deletionTimestamp": "now"}
        self.runs[name] = self.runs[name].with_changes(metadata=metadata)

    def edit_profile(self, **spec: Any) -> None:
        resource = self.profile.spec.to_resource() | spec
        self._meta("generation", int(self.profile.metadata["generation"]) + 1)
        self.profile = self.profile.with_changes(spec=ServingProfileSpec.model_validate(resource))

    def annotate(self, key: str, value: str) -> None:
        self._meta("annotations", {**self.profile.metadata.get("annotations", {}), key: value})

    def _meta(self, key: str, value: object) -> None:
        self.profile = self.profile.with_changes(metadata={**self.profile.metadata, key: value})

    def set_args(self, args: list[str], *, writer: str = "kubectl") -> None:
        self.args, self.rolled_at, self.writer = args, self.now, writer
        self.generation += 1
        if not self.paused:
            self.served_args = list(args)

    def set_image(self, image: str) -> None:
        self.image, self.rolled_at = image, self.now
        self.generation += 1

    def set_clock_back(self, by: timedelta) -> None:
        """The operator's clock alone: what the world does by itself takes as long as before."""
        self.now -= by
        self.stage_ends -= by
        self.rolled_at -= by
        self.agent_since = None if self.agent_since is None else self.agent_since - by
        for clone in self.clones.values():
            clone.created -= by

    def take_clone_away(self) -> None:
        """As the kubelet does it when the node runs short."""
        for clone in self.clones.values():
            clone.dead, clone.reason = True, "Evicted"

    def preempt_clone(self) -> None:
        """As the scheduler does it for a pod of production: the pod is deleted."""
        self.clones.clear()

    def replace_pods(self) -> None:
        """As a drained node or a restarted rollout does it."""
        self.pods_replaced += 1

    # What is done.

    def perform(self, action: act.RunAction | act.ProfileAction | act.StoreSamples, run: str = "") -> None:
        match action:
            case act.EnsureAgent():
                if self.agent_since is None and self.obstacle is None:
                    self.agent_since, self.stage = self.now, None
                    self.created.append(f"{run}/agent")
            case act.DeleteAgent():
                self.agent_since, self.stage = None, None
            case act.EnsureClone(start=start, words=words, live_tuning=live_tuning):
                if start not in self.clones and self.obstacle is None:
                    setting = present_setting(replace(self._container, words=words))
                    assert setting is not None
                    self.clones[start] = Clone(setting, self.now, self.failing_starts.get(setting, ""))
                    self.clones[start].delivered = live_tuning is LiveTuning.ALLOWED
                    self.created.append(f"{run}/clone-{start}")
            case act.DeleteClone(start=start):
                self.clones.pop(start, None)
            case act.SetLimits(setting=setting):
                self.clones[max(self.clones)].live = setting
            case act.StartStage(spec=spec, helpers=helpers):
                if self.stage is not None and self.stage.id != spec.id and self._stage_runs():
                    self.stage = None  # of a clone that is gone: it makes way, and is ordered anew
                elif self.stage is None or self.stage.id != spec.id:
                    self.stage = spec
                    self.ordered.append(spec)
                    self.ordered_with.append(helpers)
                    status, _ = answer(spec, self._setting_under_test())
                    self.stage_ends = self.now + timedelta(seconds=status.elapsed_s)
                    self.created.append(f"{run}/stage/{spec.id}")
            case act.StoreSamples(stage=stage, samples=samples):
                self.evidence.setdefault(f"{run}/{stage}", samples)
            case act.ScaleWorkload(expected=expected, wanted=wanted):
                if self.replicas == expected and not self.scaling_fails:
                    self.replicas = expected if self.autoscaling else wanted
                    self.generation += 2 if self.autoscaling else 1
                    self.writes.append(("replicas", wanted))
            case act.WriteWords(before=before, after=after):
                if self.words == before:
                    self.set_args(list(after.args or []), writer="kneekeeper")
                    self.writes.append(("words", after))
                    if self.reverting:
                        self.set_args(list(before.args or []), writer="gitops")
            case act.CreateRun(name=name, trigger=trigger, schedule=schedule):
                if name not in self.runs:
                    self.runs[name] = TuningRun(
                        metadata={"name": name, "namespace": "prod", "uid": f"uid-{name}", "generation": 1},
                        spec=TuningRunSpec(profile_name="chat", trigger=trigger, schedule=schedule),
                    )
                    self.created.append(name)
            case act.DeleteRun(name=name):
                if name in self.runs:
                    self.delete_run(name)
            case act.EmitEvent():
                self.events.append(action)
