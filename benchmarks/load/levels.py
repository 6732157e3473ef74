"""What is offered, and what a client tells of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MODEL = "truth"
PROMPT_TOKENS = 64


@dataclass(frozen=True)
class Level:
    """One level of load. A closed loop has `streams`, an open one a `rate` with constant gaps; the other is 0."""

    requests: int
    output_tokens: int
    streams: int = 0
    rate: float = 0.0

    @property
    def name(self) -> str:
        """The key of the results: `64`, or `200rps`."""
        return str(self.streams) if self.streams else f"{self.rate:g}rps"


@dataclass(frozen=True)
class Quantiles:
    """P50 and P99 in milliseconds, of requests."""

    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float

    @classmethod
    def of(cls, ttft_ms: NDArray[np.float64], tpot_ms: NDArray[np.float64]) -> Quantiles:
        """Linear between samples, as all clients here do."""
        return cls(*map(float, (*np.percentile(ttft_ms, (50, 99)), *np.percentile(tpot_ms, (50, 99)))))

    def minus(self, other: Quantiles) -> Quantiles:
        return Quantiles(
            self.ttft_p50 - other.ttft_p50,
            self.ttft_p99 - other.ttft_p99,
            self.tpot_p50 - other.tpot_p50,
            self.tpot_p99 - other.tpot_p99,
        )


@dataclass(frozen=True)
class Report:
    """What a client says. `verdict` is its own word on whether the measurement counts; most have none."""

    quantiles: Quantiles
    completed: int
    verdict: str = ""


class ClientFailed(Exception):
    """A client ended without a report that can be read; the message has its last words."""


class Client(ABC):
    """One load generator."""

    name: str

    @property
    @abstractmethod
    def version(self) -> str:
        """The release that is measured."""

    @abstractmethod
    def prepare(self) -> None:
        """Install what is needed. Raises ClientUnavailable."""

    @abstractmethod
    def command(self, level: Level, port: int, scratch: Path) -> list[str]:
        """The process that offers the level to 127.0.0.1:`port`; it may write into `scratch`, where it also runs."""

    @abstractmethod
    def report(self, level: Level, scratch: Path) -> Report:
        """What it left in `scratch`. Raises ClientFailed."""
