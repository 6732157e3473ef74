"""Recorded objects of a real run, as the commands read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kneekeeper.api.serving_profile import ServingProfile
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.observe.own_resources import parse_profile, parse_run

APPLIED = Path(__file__).parents[2] / "dashboard" / "recorded" / "applied.yaml"
"""A profile with one run that ended, and its two replicas."""


def objects() -> list[dict[str, Any]]:
    """The profile, and the run."""
    return list(yaml.safe_load_all(APPLIED.read_text(encoding="utf-8")))


def profile() -> ServingProfile:
    return parse_profile(objects()[0])


def run() -> TuningRun:
    return parse_run(objects()[1])
