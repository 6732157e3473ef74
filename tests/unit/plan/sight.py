"""What a small cluster shows: the observations of a profile and of a run, as `observe` would read them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import ProbeTarget
from kneekeeper.api.sources import SourcesReport
from kneekeeper.api.stage import TARGET_UNREACHABLE, USERS_SERVED, WINDOW_CLOSED, StageSpec, StageState
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.domain.burn_rate import WINDOWS_S
from kneekeeper.domain.live_settings import limits_of
from kneekeeper.domain.observation import (
    EngineMetrics,
    GpuRoom,
    PodPhase,
    PodView,
    ProductionLoad,
    ProfileObservation,
    RunObservation,
    StageView,
    Unreachable,
    ViolationShare,
    WorkloadView,
)
from kneekeeper.livetune.limits import Envelope, Standing
from kneekeeper.livetune.messages import PROTOCOL
from kneekeeper.livetune.messages import Report as LiveReport
from tests.unit.no_samples import NO_SAMPLES
from tests.unit.plan.circumstances import ROLLOUT_S, STARTUP_S, Circumstances
from tests.unit.plan.engine_law import answer
from tests.unit.plan.pods import pod_view


class Sight(Circumstances):
    """Reads the circumstances as the operator sees them."""

    def workload(self) -> WorkloadView | None:
        if not self.workload_exists or not self.readable:
            return None
        rolling = self.rolling or self.served_args != self.args
        ready = max(0, self.replicas - (1 if rolling else 0) - self.unready)
        return WorkloadView(
            kind="Deployment",
            name="chat",
            namespace="prod",
            uid="uid-workload",
            resource_version=str(self.generation),
            generation=self.generation,
            observed_generation=self.generation,
            replicas=self.replicas,
            updated_replicas=ready,
            ready_replicas=ready,
            total_replicas=self.replicas + self.leaving,
            progress_deadline_exceeded=False,
            owner=self.owner,
            labels={},
            annotations=self.annotations,
            containers=(self._container,),
            node_selector={},
            pod_template={},
            last_writer=self.writer,
            max_unavailable=self.max_unavailable,
        )

    def pods(self) -> tuple[PodView, ...]:
        crashing = self._new_pods_crash and self.now > self.rolled_at + timedelta(seconds=ROLLOUT_S)
        return tuple(
            self._pod(
                f"chat-{i}",
                ContainerWords(command=["vllm"], args=list(self.served_args)),
                ready=not (crashing and i == 0),
                crashing=crashing and i == 0,
            )
            for i in range(self.replicas)
        )

    def _pod(self, name: str, words: ContainerWords, *, ready: bool, crashing: bool = False) -> PodView:
        view = pod_view(name, words, self.now, self.gpu_product)
        view = replace(view, image=self.image, image_id=f"registry.example.com/vllm@{self.digest}")
        if crashing:
            log = "torch.OutOfMemoryError: CUDA out of memory."
            view = replace(view, restarts=3, waiting_reason="CrashLoopBackOff", log_tail=log)
        return replace(view, ready=ready)

    def observe_profile(self) -> ProfileObservation:
        pods = self.pods() if self.workload_exists else ()
        return ProfileObservation(
            now=self.now,
            profile=self.profile,
            workload=self.workload(),
            workload_problem="" if self.readable else "deployments may not be read",
            deleting=self.profile_deleting,
            runs=tuple(self.runs.values()),
            pods=pods,
            pod_metrics={p.name: EngineMetrics(1, 0, 100_000, 0.0, 0.0) for p in pods},
            violations=self.violations,
            violations_over=self._violations_over(),
            demand=self.demand,
            gpu_room=None if self.room_for_surge is None else GpuRoom(self.gpu_product, self.room_for_surge),
        )

    def _violations_over(self) -> dict[float, ViolationShare] | None:
        share = self.missing_share
        if share is None:
            return None
        return {w: ViolationShare(share, share, 1000, window_s=w) for w in WINDOWS_S}

    def observe_run(self, run: TuningRun) -> RunObservation:
        clone_state = run.status.clone
        clone = self._clone_view(clone_state.start) if clone_state else None
        if self._is_in_place(run):
            clone = self._serving_pod(clone_state.serving_pod if clone_state else "")
        profile = self.profile
        if self.profile_deleting:
            profile = profile.with_changes(metadata={**profile.metadata, "deletionTimestamp": "now"})
        return RunObservation(
            now=self.now,
            run=run,
            profile=profile if self.profile_exists and not self.profile_problem else None,
            profile_problem=self.profile_problem,
            workload=self.workload(),
            deleting="deletionTimestamp" in run.metadata,
            clone=clone,
            clone_starts=tuple(self.clones),
            agent=self._agent_view(),
            helpers=tuple(self._helper_view(number) for number in range(1, self.helpers_ready + 1)),
            most_agents=self.most_agents,
            agent_exists=self.agent_since is not None,
            stage=self._stage_view() if self.clones or (clone is not None and self._is_in_place(run)) else None,
            clone_metrics=self._clone_metrics() if clone and clone.ready and self.counters_readable else None,
            live=self._live_view(),
            sources=self._sources_view(),
            records=self.records,
            draft_acceptance=self.production_acceptance,
            gpu_product=self.gpu_product,
            image_digest=run.status.plan.image_digest if run.status.plan else self.digest,
            gpu_room=GpuRoom(self.gpu_product, self._free_gpus()),
            obstacle=self.obstacle if clone is None or self.agent_since is None else None,
            production=self._production(),
        )

    def _is_in_place(self, run: TuningRun) -> bool:
        return run.status.plan is not None and run.status.plan.probe_target is ProbeTarget.IN_PLACE

    def _serving_pod(self, pinned: str) -> PodView | None:
        """As `observe` reads it: the pinned one if it is there, else the first."""
        if not self.replicas:
            return None
        uid = f"uid-chat-{self.pods_replaced}"
        view = replace(self.pods()[0], uid=uid, restarts=self.engine_restarts, phase=self.pod_phase)
        return replace(view, ready=not self.unready) if pinned in ("", uid) else None

    def _production(self) -> ProductionLoad | Unreachable:
        if not self.production_readable:
            return Unreachable("no pod answers")
        return ProductionLoad(self.production_running, self.production_waiting, self.exhausted_budgets)

    def _free_gpus(self) -> int:
        return self.replicas_at_start - self.replicas + self.spare_gpus - len(self.clones) * self.gpus

    def _clone_metrics(self) -> EngineMetrics:
        """Its counters grow with every stage."""
        queries = 100_000.0 * len(self.ordered)
        return replace(
            EngineMetrics(self.users, 0, 100_000, 0.0, 0.0, block_tokens=16),
            prefix_cache_queries_total=queries,
            prefix_cache_hits_total=self.hit_share * queries,
            draft_tokens_total=queries,
            accepted_tokens_total=self.clone_acceptance * queries,
        )

    def _live_view(self) -> LiveReport | Unreachable | None:
        if not self.clones:
            return None
        clone = self.clones[max(self.clones)]
        if not clone.delivered:
            return Unreachable("the live-tuning plugin does not answer: ConnectError")
        if self.plugin_fault is not None:
            return self.plugin_fault
        start, wanted = limits_of(clone.setting), limits_of(clone.live or clone.setting)
        standing = Standing(wanted, wanted, running=0, settled_s=0.0, steps=1, changes=0, fall_backs=0)
        return LiveReport(PROTOCOL, "0.32.0", Envelope(start, start), standing, 60.0)

    def _sources_view(self) -> SourcesReport | None:
        agent = self._agent_view()
        return self.sources if agent is not None and agent.ready else None

    def _agent_view(self) -> PodView | None:
        if self.agent_since is None:
            return None
        ready = self.now >= self.agent_since + timedelta(seconds=3) and not self.agent_broken
        view = self._pod("agent", ContainerWords(), ready=ready)
        return replace(view, waiting_reason="ImagePullBackOff" if self.agent_broken else "")

    def _clone_view(self, start: int) -> PodView | None:
        clone = self.clones.get(start)
        if clone is None:
            return None
        up = self.now >= clone.created + timedelta(seconds=STARTUP_S) and self.clones_placed
        view = self._pod(f"clone-{start}", ContainerWords(), ready=up and self.clone_ready and not clone.log)
        if not self.clones_placed:
            message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
            return replace(view, phase=PodPhase.PENDING, node="", unschedulable_message=message, queued=self.queued)
        if clone.dead or (up and clone.log):
            ended = replace(view, phase=PodPhase.FAILED, ready=False, exit_code=1)
            return replace(ended, waiting_reason=clone.reason, log_tail=clone.log or "Killed")
        return view

    def _helper_view(self, number: int) -> PodView:
        return replace(pod_view(f"agent-{number}", ContainerWords(), self.now, ""), ip=f"10.244.2.{number}")

    def _stage_view(self) -> StageView | Unreachable | None:
        if self.agent_since is None:
            return None
        if not self.agent_reachable:
            return Unreachable("the load agent does not answer: ConnectTimeout")
        if self.stage is None:
            return StageView(None, None)
        broken_off = self._broken_off(self.stage)
        if broken_off:
            status, _ = answer(self.stage, self._setting_under_test())
            changes = {
                "state": StageState.INVALID,
                "reason": broken_off,
                "message": "users sent 1 request",
                "elapsed_s": 1,
            }
            return StageView(status.model_copy(update=changes), NO_SAMPLES)
        ended = not self._stage_runs()
        status, samples = answer(self.stage, self._setting_under_test())
        if not ended:
            elapsed_s = status.elapsed_s - (self.stage_ends - self.now).total_seconds()
            running = {"state": StageState.RUNNING, "elapsed_s": max(0.0, elapsed_s)}
            return StageView(status.model_copy(update=running), None)
        if self.slow and self.slow in self.stage.id:
            stretched = [
                first + 3 * (last - first) for first, last in zip(samples.first_s, samples.last_s, strict=True)
            ]
            samples = samples.model_copy(update={"last_s": stretched})
        if self.failing and self.failing in self.stage.id:
            status = status.model_copy(update={"state": StageState.FAILED, "message": "the target does not answer"})
        if not self.clone_reachable:
            told = "cannot connect to 10.244.0.9 port 8000: no answer within 5 s."
            changes = {"state": StageState.FAILED, "reason": TARGET_UNREACHABLE, "message": told}
            return StageView(status.model_copy(update=changes), NO_SAMPLES)
        return StageView(status, samples)

    def _broken_off(self, stage: StageSpec) -> str:
        """As the agent's guard does it, once."""
        if stage.guard is not None and stage.id not in self.broken_off:
            if (self.interrupting and self.interrupting in stage.id) or (self._stage_runs() and self.users):
                self.broken_off[stage.id] = USERS_SERVED
            elif self._stage_runs() and self.now.timestamp() >= stage.guard.until_s:
                self.broken_off[stage.id] = WINDOW_CLOSED
        return self.broken_off.get(stage.id, "")
