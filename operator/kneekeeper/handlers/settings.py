"""What the operator is told by its environment; the chart sets what clusters differ in."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from kneekeeper.handlers.run_queue import DEFAULT_MOST_RUNS


class Settings(BaseModel):
    """Every field is read from KNEEKEEPER_<FIELD>, in capitals."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: str = Field(default="", description="The image of load agents: this operator's own.")
    image_pull_policy: str = Field(default="IfNotPresent", pattern="^(Always|IfNotPresent|Never)$")
    prometheus_url: str = Field(default="", description="Used where a profile names none; empty: pods are scraped.")
    watch_namespaces: tuple[str, ...] = Field(default=(), description="Empty: the whole cluster.")
    priority_class: str = Field(default="", description="Of clones; below every workload, never preempting.")
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    watch_silence_s: float = Field(
        default=70.0,
        ge=5.0,
        description="A watch that was cut without a word is found by its silence and opened anew after this. "
        "API servers send a bookmark a minute: below that, quiet watches are opened anew for nothing.",
    )
    most_runs: int = Field(
        default=DEFAULT_MOST_RUNS, ge=1, description="Of all profiles together that measure at the same time."
    )
    health_port: int = Field(default=8080, ge=1, le=65535)
    metrics_port: int = Field(default=9090, ge=1, le=65535)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Raises pydantic.ValidationError that names the variable which is wrong."""
        values: dict[str, object] = {}
        for name in cls.model_fields:
            text = environment.get(f"KNEEKEEPER_{name.upper()}")
            if text is None:
                continue
            values[name] = tuple(filter(None, text.split(","))) if name == "watch_namespaces" else text
        return cls.model_validate(values)
