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
from kneekeeper.domain.target import Target
from kneekeeper.domain.windows import is_open, opens_after

MAX_RETRIES = 2
MOST_NEW_ENGINES = 3
"""Runs for engines not measured before that may start within one `retune.minInterval`: a rollout of several
steps needs some, a tool that writes another argument at every sync would need one for ever."""

MOST_DOUBLINGS = 5
"""A breach that no run mends is measured again after 2, 4, … 32 times the interval."""

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


@dataclass(frozen=True)
class Hold:
    """What keeps a wanted run from starting; `reason` is a condition's reason."""

    reason: str
    message: str


def wanted_run(obs: ProfileObservation, status: ServingProfileStatus, target: Target, key: str) -> WantedRun | None:
    """The run that should be next, or None. `key` names the question that is asked now."""
    asked = asked_for(obs)
    if asked is not None and asked != status.handled_retune:
        return WantedRun(Trigger.REQUESTED)
    same = [r for r in status.runs if r.key == key]
    if same:
        return _again(obs, status, same)
    trigger = _what_changed(obs, status, target)
    if trigger is None or trigger not in _TRIGGER.values():
        return None if trigger is None else WantedRun(trigger)
    return _cooled_down(obs, status, trigger)


def hold_of(obs: ProfileObservation, wanted: WantedRun) -> Hold | None:
    """What keeps it back now."""
    if wanted.not_before is not None and obs.now < wanted.not_before:
        text = (
            f"A run for {wanted.trigger} waits until {wanted.not_before:%Y-%m-%d %H:%M} UTC (spec.retune.minInterval)."
        )
        return Hold(wanted.reason, text)
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


def _again(obs: ProfileObservation, status: ServingProfileStatus, same: list[RunReference]) -> WantedRun | None:
    """A question that was asked before: tried again where it has no answer, or where the answer does not hold."""
    last, waits = same[-1], obs.profile.spec.retune.min_interval
    if last.finished_at is None:
        return None
    if last.outcome == RunOutcome.CERTIFIED and status.recommendation is None:
        # Its evidence was forgotten while another engine ran.
        known = any(r.metadata["name"] == last.name for r in obs.runs)
        return None if known else _later(status, Trigger.RETRY, waits)
    if last.outcome in _RETRIED:
        if len(same) > MAX_RETRIES:
            return None
        return WantedRun(Trigger.RETRY) if last.cause in _INTERRUPTED else _later(status, Trigger.RETRY, waits)
    if RetuneTrigger.SLO_BREACH not in obs.profile.spec.retune.on or burning(obs.violations_over or {}) is None:
        return None
    breaches = sum(r.trigger == Trigger.SLO_BREACH for r in same)
    return _later(status, Trigger.SLO_BREACH, waits * 2 ** min(breaches, MOST_DOUBLINGS))


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


def _what_changed(obs: ProfileObservation, status: ServingProfileStatus, target: Target) -> Trigger | None:
    """Against what was measured last; None where nothing that is watched has changed."""
    measured = next((r.status.plan for r in reversed(obs.runs) if r.status.plan is not None), None)
    known = (r.fingerprint for r in reversed(status.runs) if r.fingerprint)
    before = EngineFingerprint.parse(measured.fingerprint if measured is not None else next(known, ""))
    now = EngineFingerprint.parse(target.fingerprint)
    if before is None or now is None:
        return Trigger.NEW
    changes = now.changes_since(before)
    watched = [_TRIGGER[change] for change in changes if change in obs.profile.spec.retune.on]
    if watched:
        return watched[0]
    asks_anew = measured is not None and not measured.measures_the_same_as(obs.profile.spec)
    return Trigger.PROFILE if asks_anew or not changes else None
