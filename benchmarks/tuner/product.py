"""The product's own procedure on a simulated engine: its plan decides, this module is the world around it.

Ceiling, ramp, fit, choice and certification are the product's code to the last line; what it would do afterwards, to
compare the present setting, is left out, since no search does it either.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.tuner.scenarios import Scenario
from benchmarks.tuner.stage import StageRun, run_stage
from kneekeeper.api.model import Setting
from kneekeeper.api.rollout import ContainerWords
from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.stage import StageSpec
from kneekeeper.api.tuning_run import RunStep, TuningRun, TuningRunSpec, TuningRunStatus, Verdict
from kneekeeper.domain.actions import DeleteClone, EnsureAgent, EnsureClone, RunAction, StartStage
from kneekeeper.domain.names import stage_id
from kneekeeper.domain.observation import (
    ContainerView,
    EngineMetrics,
    PodPhase,
    PodView,
    RunObservation,
    StageView,
    WorkloadView,
)
from kneekeeper.domain.plan.run import decide
from kneekeeper.domain.target import present_setting

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_STEPS = (RunStep.PREFLIGHT, RunStep.CEILING, RunStep.RAMP, RunStep.CHOOSE, RunStep.CERTIFY)
_IMAGE = "vllm/vllm-openai:v0.32.0"
_LOG = (
    "ValueError: max_num_seqs ({wanted}) exceeds available Mamba cache blocks ({most}). Please lower max_num_seqs to "
    "at most {most} or increase gpu_memory_utilization."
)


@dataclass(frozen=True)
class ProductResult:
    """What a run found. `setting` and `promised` are None and 0 without a PASS."""

    setting: Setting | None
    promised: float
    """Requests/s."""
    engine_starts: int
    engine_minutes: float
    status: TuningRunStatus
    """For those who want to know how it came about."""


@dataclass
class _Clone:
    start: int
    words: ContainerWords
    setting: Setting
    since: datetime
    ready_at: datetime


class SimulatedCluster:
    """One run's engine and load agent, in simulated time. `seed` is for noise; a run with another has other draws."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario, self._seed = scenario, seed
        self.now = _BEGIN
        metadata = {"name": "engine", "namespace": "default", "uid": f"{scenario.name} {seed}", "generation": 1}
        self._profile = ServingProfile(metadata=metadata, spec=scenario.profile)
        self.run = TuningRun(metadata=metadata, spec=TuningRunSpec(profile_name="engine"))
        self._clone: _Clone | None = None
        self._agent = False
        self._stages: dict[str, StageRun] = {}
        self._stage_ends = _BEGIN
        default = scenario.engine.default_setting
        words = ["--model", "model", "--max-num-seqs", str(default.max_num_seqs)]
        words += ["--max-num-batched-tokens", str(default.max_num_batched_tokens)]
        self._container = ContainerView("vllm", _IMAGE, ContainerWords(args=words), {}, (), 0)

    def tick(self) -> bool:
        """One decision and what it does; False once there is nothing more to measure."""
        decision = decide(self._observe())
        self.run = self.run.with_changes(status=decision.status)
        if decision.status.step not in _STEPS:
            return False
        for action in decision.actions:
            self._perform(action)
        self.now = max(self.now + timedelta(seconds=decision.next_tick_s), self._next_event())
        return True

    def _next_event(self) -> datetime:
        clone = self._clone
        return max(self._stage_ends, clone.ready_at if clone is not None else _BEGIN)

    def _perform(self, action: RunAction) -> None:
        match action:
            case EnsureAgent():
                self._agent = True
            case EnsureClone() if self._clone is None or self._clone.start != action.start:
                setting = present_setting(ContainerView("vllm", _IMAGE, action.words, {}, (), 0))
                assert setting is not None  # the product has just written these words
                ready = self.now + timedelta(seconds=self._scenario.engine.start_s)
                self._clone = _Clone(action.start, action.words, setting, self.now, ready)
            case DeleteClone() if self._clone is not None and self._clone.start == action.start:
                self._clone = None
            case StartStage():
                self._start(action.spec)

    def _start(self, spec: StageSpec) -> None:
        if spec.id in self._stages or self._clone is None:
            return
        begun_s = (self.now - _BEGIN).total_seconds()
        seed = [self._seed, len(self._stages)]
        noise_seed = seed[0] * 1_000 + seed[1]
        done = run_stage(self._scenario.engine, self._clone.setting, spec, noise_seed, begun_s)
        self._stages[spec.id] = done
        self._stage_ends = self.now + timedelta(seconds=done.duration_s)

    def _observe(self) -> RunObservation:
        clone = self._clone
        return RunObservation(
            now=self.now,
            run=self.run,
            profile=self._profile,
            workload=self._workload(),
            clone=None if clone is None else self._pod(clone),
            clone_starts=() if clone is None else (clone.start,),
            agent=_pod("agent", ContainerWords(), _BEGIN, ready=True, log="") if self._agent else None,
            stage=self._stage(),
            clone_metrics=None if clone is None else self._metrics(clone),
            agent_exists=self._agent,
        )

    def _pod(self, clone: _Clone) -> PodView:
        engine = self._scenario.engine
        over = self.now >= clone.ready_at
        log = ""
        if over and not engine.starts(clone.setting):
            log = _LOG.format(wanted=clone.setting.max_num_seqs, most=engine.most_sequences)
        return _pod(f"engine-{clone.start}", clone.words, clone.since, ready=over and not log, log=log)

    def _stage(self) -> StageView | None:
        current, clone = self.run.status.current_stage, self._clone
        if current is None or clone is None:
            return None
        done = self._stages.get(stage_id(current.name, f"engine-{clone.start}"))
        return StageView(None, None) if done is None else StageView(done.status, done.samples)

    def _metrics(self, clone: _Clone) -> EngineMetrics:
        return EngineMetrics(
            running=0,
            waiting=0,
            kv_cache_tokens=self._scenario.engine.kv_tokens(clone.setting),
            generation_tokens_total=0.0,
            preemptions_total=0.0,
        )

    def _workload(self) -> WorkloadView:
        return WorkloadView(
            kind="Deployment",
            name="engine",
            namespace="default",
            uid="engine",
            resource_version="1",
            generation=1,
            observed_generation=1,
            replicas=1,
            updated_replicas=1,
            ready_replicas=1,
            total_replicas=1,
            progress_deadline_exceeded=False,
            owner=None,
            labels={},
            annotations={},
            containers=(self._container,),
            node_selector={},
            pod_template={},
        )


def tune(scenario: Scenario, seed: int) -> ProductResult:
    """Run the product's procedure to its end."""
    world = SimulatedCluster(scenario, seed)
    while world.tick():
        pass
    status = world.run.status
    proven = next((c for c in reversed(status.certifications) if c.verdict is Verdict.PASS), None)
    return ProductResult(
        setting=None if proven is None else proven.setting,
        promised=0.0 if proven is None else proven.promised_requests_per_second,
        engine_starts=status.cost.engine_starts,
        engine_minutes=(world.now - _BEGIN).total_seconds() / 60,
        status=status,
    )


def _pod(name: str, words: ContainerWords, created_at: datetime, *, ready: bool, log: str) -> PodView:
    return PodView(
        name=name,
        uid=name,
        node="",
        ip="127.0.0.1",
        phase=PodPhase.FAILED if log else PodPhase.RUNNING,
        ready=ready,
        deleting=False,
        restarts=0,
        waiting_reason="",
        exit_code=1 if log else None,
        unschedulable_message="",
        created_at=created_at,
        words=words,
        image_id="",
        log_tail=log,
    )
