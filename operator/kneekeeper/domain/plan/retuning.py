"""Which run is wanted, and what holds it back.

What a person does (a new profile, an edit of it, the annotation) is never held back by the clock, nor is the
first run of an engine that was not measured before. Every other automatic run starts `retune.minInterval`
after the start of the last one at the earliest, and an engine that keeps changing is cooled down.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kneekeeper.api.profile_status import RunReference, ServingProfileStatus
from kneekeeper.api.serving_profile import RetuneTrigger
from kneekeeper.api.tuning_run import RunOutcome, Trigger
from kneekeeper.domain.burn_rate import burning
from kneekeeper.domain.engine_fingerprint import EngineFingerprint
from kneekeeper.domain.names import ANNOTATION_RETUNE
from kneekeeper.domain.observation import ProfileObservation
from kneekeeper.domain.plan.profile_traffic import NOT_LEARNED, NOT_LEARNED_MESSAGE, measured_spec
from kneekeeper.domain.plan.questions import ANSWERS, RECOMMENDED, Question
from kneekeeper.domain.plan.run_in_place import NEVER_AGAIN
from kneekeeper.domain.target import Target
from kneekeeper.domain.windows import is_open, opens_after

MAX_RETRIES = 2
MOST_NEW_ENGINES = 3
"""Runs for engines not measured before that may start within one `retune.minInterval`: a rollout of several
steps needs some, a tool that writes another argument at every sync would need one for ever."""

MOST_DOUBLINGS = 5
"""A breach that no run mends is measured again after 2, 4, … 32 times the interval."""

SETTLES = "TrafficSettles"
"""Reason of Probing."""

TRAFFIC_SETTLES_S = 2 * 3600.0
"""A drift has to last so long, some four looks at the history, before it starts a run."""

TRAFFIC_CALMS_S = 7 * 86_400.0
"""Each run for traffic in so long a time doubles the pause before the next. What is learned is the traffic of a week:
after a change it goes on moving for so long, and traffic that swings to and fro would be followed for ever."""

MAX_RETUNE_CHARACTERS = 253
"""As many as a profile's status holds; a longer annotation is cut."""

_TRIGGER = {
    RetuneTrigger.IMAGE: Trigger.IMAGE,
    RetuneTrigger.MODEL: Trigger.MODEL,
    RetuneTrigger.ARGUMENTS: Trigger.ARGUMENTS,
    RetuneTrigger.HARDWARE: Trigger.HARDWARE,
}
# Ends that say nothing of the engine: the same question may be asked again.
_RETRIED = (RunOutcome.INCONCLUSIVE, RunOutcome.FAILED, RunOutcome.CANCELLED)
# Ends that the profile itself asked for: the question is asked again as soon as it may be.
_INTERRUPTED = ("Suspended", "WindowClosed")


@dataclass(frozen=True)
class WantedRun:
    """Why a run is wanted, and from when on it may start."""

    trigger: Trigger
    not_before: datetime | None = None
    reason: str = ""  # of what holds it back
    why: str = ""  # for people, where the trigger alone does not tell


@dataclass(frozen=True)
class Hold:
    """What keeps a wanted run from starting; `reason` is a condition's reason."""

    reason: str
    message: str


def wanted_run(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, question: Question
) -> WantedRun | None:
    """The run that should be next, or None, for the question that is asked now."""
    asked = asked_for(obs)
    if asked is not None and asked != status.handled_retune:
        return WantedRun(Trigger.REQUESTED)
    same = [r for r in status.runs if r.key == question.key]
    return _again(obs, status, same, question) if same else _first(obs, status, target, question)


def wanted_ahead(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, question: Question
) -> WantedRun | None:
    """The same for a question of other hours: what is asked for and what production misses now are not of them."""
    same = [r for r in status.runs if r.key == question.key]
    if not same:
        return _first(obs, status, target, question)
    if same[-1].outcome in ANSWERS and not _is_known(obs, same[-1]):
        return _later(status, Trigger.RETRY, obs.profile.spec.retune.min_interval)
    return _retried(obs, status, same)


def _first(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, question: Question
) -> WantedRun | None:
    trigger = _what_changed(obs, status, target, question)
    if trigger is None or trigger not in _TRIGGER.values():
        return None if trigger is None else WantedRun(trigger)
    return _cooled_down(obs, status, trigger)


def hold_of(obs: ProfileObservation, wanted: WantedRun) -> Hold | None:
    """What keeps it back now."""
    if measured_spec(obs.profile) is None:
        return Hold(NOT_LEARNED, NOT_LEARNED_MESSAGE)
    if wanted.not_before is not None and obs.now < wanted.not_before:
        because = "whether the traffic stays so" if wanted.reason == SETTLES else "spec.retune.minInterval"
        until = f"{wanted.not_before:%Y-%m-%d %H:%M} UTC ({because})"
        text = f"A run for {wanted.trigger} waits until {until}. {wanted.why}"
        return Hold(wanted.reason, text.rstrip())
    window = obs.profile.spec.probe.window
    if window is not None and not is_open(window, obs.now):
        opens = opens_after(window, obs.now)
        return Hold(
            "OutsideWindow", f"A run for {wanted.trigger} waits for spec.probe.window: {opens:%Y-%m-%d %H:%M} UTC."
        )
    return None


def asked_for(obs: ProfileObservation) -> str | None:
    """The value of the annotation that asks for a run, as far as a status holds it."""
    asked = obs.profile.metadata.get("annotations", {}).get(ANNOTATION_RETUNE)
    return None if asked is None else str(asked)[:MAX_RETUNE_CHARACTERS]


def _again(
    obs: ProfileObservation, status: ServingProfileStatus, same: list[RunReference], question: Question
) -> WantedRun | None:
    """A question that was asked before: tried again where it has no answer, or where the answer does not hold."""
    last, waits = same[-1], obs.profile.spec.retune.min_interval
    if last.finished_at is None:
        return None
    if last.outcome in RECOMMENDED and status.recommendation is None:
        # Its evidence was forgotten while another engine ran.
        return None if _is_known(obs, last) else _later(status, Trigger.RETRY, waits)
    if last.outcome in _RETRIED:
        return _retried(obs, status, same) or _for_traffic(obs, status, question)
    if obs.profile.spec.schedules and last.outcome == RunOutcome.NO_IMPROVEMENT and not _is_known(obs, last):
        # Without its evidence nothing could be written back after other hours.
        return _later(status, Trigger.RETRY, waits)
    if RetuneTrigger.SLO_BREACH in obs.profile.spec.retune.on and burning(obs.violations_over or {}) is not None:
        breaches = sum(r.trigger == Trigger.SLO_BREACH for r in same)
        return _later(status, Trigger.SLO_BREACH, waits * 2 ** min(breaches, MOST_DOUBLINGS))
    return _for_traffic(obs, status, question)


def _for_traffic(obs: ProfileObservation, status: ServingProfileStatus, question: Question) -> WantedRun | None:
    """Traffic that moved and stayed so. Where it keeps moving, runs come further and further apart."""
    drift = status.traffic_drift
    if drift is None or question.spec.workload is not None:
        return None
    recent = [r.started_at for r in status.runs if r.trigger == Trigger.TRAFFIC and r.started_at is not None]
    doublings = sum((obs.now - at).total_seconds() < TRAFFIC_CALMS_S for at in recent)
    interval_s = obs.profile.spec.retune.min_interval * 2 ** min(doublings, MOST_DOUBLINGS)
    wanted = _later(status, Trigger.TRAFFIC, interval_s)
    settled = drift.since + timedelta(seconds=TRAFFIC_SETTLES_S)
    if wanted.not_before is None or wanted.not_before < settled:
        return WantedRun(Trigger.TRAFFIC, settled, SETTLES, drift.message)
    return WantedRun(Trigger.TRAFFIC, wanted.not_before, "CoolDown" if doublings else wanted.reason, drift.message)


def _is_known(obs: ProfileObservation, reference: RunReference) -> bool:
    return any(r.metadata["name"] == reference.name for r in obs.runs)


def _retried(obs: ProfileObservation, status: ServingProfileStatus, same: list[RunReference]) -> WantedRun | None:
    last = same[-1]
    if last.outcome not in _RETRIED or last.cause in NEVER_AGAIN or len(same) > MAX_RETRIES:
        return None
    if last.cause in _INTERRUPTED:
        return WantedRun(Trigger.RETRY)
    return _later(status, Trigger.RETRY, obs.profile.spec.retune.min_interval)


def _later(status: ServingProfileStatus, trigger: Trigger, interval_s: float) -> WantedRun:
    starts = [r.started_at or r.finished_at for r in status.runs]
    last = max((s for s in starts if s is not None), default=None)
    return WantedRun(trigger, None if last is None else last + timedelta(seconds=interval_s), "MinInterval")


def _cooled_down(obs: ProfileObservation, status: ServingProfileStatus, trigger: Trigger) -> WantedRun:
    """The first run of a new engine starts at once, unless engines change faster than they can be measured."""
    engines = {str(t) for t in _TRIGGER.values()}
    starts = [r.started_at for r in status.runs if r.trigger in engines and r.started_at is not None]
    if len(starts) < MOST_NEW_ENGINES:
        return WantedRun(trigger)
    oldest = sorted(starts)[-MOST_NEW_ENGINES]
    return WantedRun(trigger, oldest + timedelta(seconds=obs.profile.spec.retune.min_interval), "CoolDown")


def _what_changed(
    obs: ProfileObservation, status: ServingProfileStatus, target: Target, question: Question
) -> Trigger | None:
    """Against what was measured last; None where nothing that is watched has changed."""
    plans = [r.status.plan for r in reversed(obs.runs) if r.status.plan is not None]
    measured = plans[0] if plans else None
    known = (r.fingerprint for r in reversed(status.runs) if r.fingerprint)
    before = EngineFingerprint.parse(measured.fingerprint if measured is not None else next(known, ""))
    now = EngineFingerprint.parse(target.fingerprint)
    if before is None or now is None:
        return Trigger.NEW
    changes = now.changes_since(before)
    watched = [_TRIGGER[change] for change in changes if change in obs.profile.spec.retune.on]
    if watched:
        return watched[0]
    # With schedules the last run may have asked for other hours.
    compared = plans if obs.profile.spec.schedules else plans[:1]
    asks_anew = bool(plans) and not any(plan.measures_the_same_as(question.spec) for plan in compared)
    return Trigger.PROFILE if asks_anew or not changes else None
