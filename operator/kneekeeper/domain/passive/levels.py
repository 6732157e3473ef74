"""A cloud of windows as a ladder of load levels, and the line of step time over concurrency through them.

A step of N requests takes a + b N seconds, so N requests get N / (a + b N) tokens a second: the curve of
domain/knee.py by tokens. A probe fits it to levels that double, each with its relative error. Production has most of
its windows at some loads and few at others, so windows are first gathered into levels of half an octave, which then
weigh as the levels of a ramp do. The knee is where 1% more requests gain `KNEE_ELASTICITY`% more tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kneekeeper.domain.knee import KNEE_ELASTICITY
from kneekeeper.domain.passive.history import EngineHistory
from kneekeeper.domain.samples import Floats, Ints

LEVELS_PER_OCTAVE = 2

MISFIT = 0.04
"""How far step times of real engines depart from a straight line between their lowest and highest loads seen:
padding to graph sizes, attention, prompts that share steps."""

BEND_PER_OCTAVE = 0.15
"""How much the slope may change for each doubling beyond the highest load that was seen."""

BLOCKS = 24
"""Windows are drawn in blocks of time, an hour of a day's: those next to each other have the same requests."""

REPEATS = 400
_SEED = 20_241
_FEWEST_LEVELS = 2
_LEAST_NOISE = 0.01
_TINY_S = 1e-9
_TIMES_TO_SETTLE = 3


@dataclass(frozen=True)
class StepCurve:
    """Mean seconds of a step in which N requests of one engine run: base + per_request N."""

    base_s: float
    per_request_s: float

    def step_s(self, running: Floats) -> Floats:
        return self.base_s + self.per_request_s * running

    def tokens_per_s(self, running: float) -> float:
        """Of `running` requests together."""
        return running / (self.base_s + self.per_request_s * running)

    @property
    def knee(self) -> float:
        """Infinite where more requests take no more time."""
        if self.per_request_s <= 0:
            return float("inf")
        return max(1.0, (1 - KNEE_ELASTICITY) / KNEE_ELASTICITY * self.base_s / self.per_request_s)


@dataclass(frozen=True, eq=False)
class Cloud:
    """Busy windows of one engine: how many requests ran, as a token meets them, and the mean step."""

    running: Floats
    step_s: Floats

    @property
    def seen(self) -> float:
        """The highest concurrency that lasted: the third highest window."""
        return float(np.sort(self.running)[-min(3, self.running.size)]) if self.running.size else 0.0


@dataclass(frozen=True, eq=False)
class LevelFit:
    """The line through the levels, and lines that the windows, drawn again, would have given."""

    curve: StepCurve
    drawn_base_s: Floats
    drawn_per_request_s: Floats

    @property
    def drawn_knees(self) -> Floats:
        """Infinite where a line does not rise."""
        rises = self.drawn_per_request_s > 0
        slope_s = np.where(rises, self.drawn_per_request_s, 1.0)
        ratio = (1 - KNEE_ELASTICITY) / KNEE_ELASTICITY
        return np.where(rises, np.maximum(1.0, ratio * np.maximum(self.drawn_base_s, _TINY_S) / slope_s), np.inf)


def cloud_of(history: EngineHistory) -> Cloud:
    """The windows of `history` that tell of step times.

    A token meets its batch more often the more tokens the batch has. Of a batch with mean m and variance v over time,
    steps of a + b N seconds, tokens meet m + e v/m requests on average, to second order in the variation, where
    e = a / (a + b m).
    """
    busy = history.busy
    if not len(busy):
        return Cloud(np.empty(0), np.empty(0))
    # Requests in their prompt run too; over many windows the gauge tells how many.
    prompts = float(busy.running.sum() / busy.decoding.sum())
    mean, step_s = busy.decoding * prompts, busy.gap_s
    variance = np.nan_to_num((busy.running_sd / busy.running * mean) ** 2)
    met = mean
    for _ in range(_TIMES_TO_SETTLE):
        fit = fit_levels(Cloud(met, step_s), repeats=0)
        elasticity = 1.0 if fit is None else np.clip(fit.curve.base_s / fit.curve.step_s(mean), 0.0, 1.0)
        met = mean + elasticity * variance / mean
    return Cloud(met, step_s)


def fit_levels(cloud: Cloud, repeats: int = REPEATS) -> LevelFit | None:
    """None where all windows lie on one level: then base and slope cannot be told apart."""
    level = _level_of(cloud.running)
    count = int(level.max(initial=-1)) + 1
    if np.unique(level).size < _FEWEST_LEVELS:
        return None
    blocks = np.arange(level.size) * min(BLOCKS, level.size) // level.size
    sums = [_by_block(blocks, level, values, count) for values in (np.ones(level.size), cloud.running, cloud.step_s)]
    once = np.ones((1, sums[0].shape[0]))
    base_s, slope_s = _lines(once, sums, _LEAST_NOISE, np.zeros((1, count)))
    residuals = cloud.step_s / np.maximum(base_s[0] + slope_s[0] * cloud.running, _TINY_S) - 1
    noise = max(_LEAST_NOISE, 1.4826 * float(np.median(np.abs(residuals - np.median(residuals)))))
    base_s, slope_s = _lines(once, sums, noise, np.zeros((1, count)))
    rng = np.random.default_rng(_SEED)
    times = rng.multinomial(blocks[-1] + 1, np.full(blocks[-1] + 1, 1 / (blocks[-1] + 1)), size=repeats)
    drawn = _lines(times.astype(np.float64), sums, noise, _bends(rng, repeats, count))
    return LevelFit(StepCurve(max(float(base_s[0]), _TINY_S), max(float(slope_s[0]), 0.0)), *drawn)


def beyond(knees: Floats, seen: float, rng: np.random.Generator) -> Floats:
    """Knees with the doubt of what lies beyond the highest load that was seen."""
    finite = np.isfinite(knees)
    octaves = np.maximum(0.0, np.log2(np.where(finite, knees, 1.0) / max(seen, 1.0)))
    return np.where(finite, knees * np.exp(rng.normal(0.0, 1.0, knees.size) * BEND_PER_OCTAVE * octaves), np.inf)


def _level_of(running: Floats) -> Ints:
    """Numbered from 0, the lowest load that was seen."""
    if not running.size:
        return np.empty(0, dtype=np.int64)
    octaves = np.floor(LEVELS_PER_OCTAVE * np.log2(np.maximum(running, 1e-3)))
    return np.asarray(octaves - octaves.min(), dtype=np.int64)


def _by_block(blocks: Ints, level: Ints, values: Floats, levels: int) -> Floats:
    """Sums of `values` in each block and level."""
    sums = np.zeros((int(blocks[-1]) + 1, levels))
    np.add.at(sums, (blocks, level), values)
    return sums


def _bends(rng: np.random.Generator, repeats: int, levels: int) -> Floats:
    """Relative departures of the levels from a line that no window tells of: a tilt and a bow."""
    place = np.linspace(-1.0, 1.0, levels)
    # Together they have the misfit's spread at the ends.
    tilt, bow = rng.normal(0.0, MISFIT / math.sqrt(2), (2, repeats, 1))
    return np.asarray(tilt * place + bow * (1 - 2 * place**2))


def _lines(times: Floats, sums: list[Floats], noise: float, bends: Floats) -> tuple[Floats, Floats]:
    """Weighted least squares of step time over concurrency with relative errors, one line a row of `times`.

    A level's error is that of its windows' mean and, however many they are, the misfit of the line.
    """
    windows, running, step_s = (times @ each for each in sums)
    known = windows > 0
    many = np.where(known, windows, 1.0)
    weight = np.where(known, 1 / (noise**2 / many + MISFIT**2), 0.0)
    seconds = np.where(known, step_s / many, 1.0) * (1 + bends)
    one, load = 1 / seconds, running / many / seconds
    s11, s12, s22 = (np.sum(weight * p, axis=1) for p in (one * one, one * load, load * load))
    s1, s2 = np.sum(weight * one, axis=1), np.sum(weight * load, axis=1)
    determinant = s11 * s22 - s12**2
    # A draw that holds one level alone says nothing of the slope: flat.
    singular = determinant <= 1e-12 * s11 * s22
    safe = np.where(singular, 1.0, determinant)
    base_s = np.where(singular, s1 / np.maximum(s11, _TINY_S), (s1 * s22 - s2 * s12) / safe)
    return base_s, np.where(singular, 0.0, (s2 * s11 - s1 * s12) / safe)
