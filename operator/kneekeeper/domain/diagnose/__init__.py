"""What is wrong with a deployment, in plain words: pure rules over a window of one engine's metrics.

A rule looks at frozen facts and answers with a finding, with what it misses, or with nothing. Metrics that are
absent are never taken for zero. Imports nothing that does I/O.
"""

from kneekeeper.domain.diagnose.diagnose import RULES, diagnose
from kneekeeper.domain.diagnose.finding import (
    Boundary,
    Confidence,
    Diagnosis,
    Evidence,
    Finding,
    NotApplicable,
    Reason,
    Unit,
    Unjudged,
)
from kneekeeper.domain.diagnose.observation import (
    DiagnosisObservation,
    EngineSettings,
    GpuWindow,
    MeasuredEngine,
    Objective,
    OutsideView,
)
from kneekeeper.domain.diagnose.reading import Counter, EngineReading, Family, Gauge, Histogram
from kneekeeper.domain.diagnose.window import Series, Window, WindowError, window_of

__all__ = [
    "RULES",
    "Boundary",
    "Confidence",
    "Counter",
    "Diagnosis",
    "DiagnosisObservation",
    "EngineReading",
    "EngineSettings",
    "Evidence",
    "Family",
    "Finding",
    "Gauge",
    "GpuWindow",
    "Histogram",
    "MeasuredEngine",
    "NotApplicable",
    "Objective",
    "OutsideView",
    "Reason",
    "Series",
    "Unit",
    "Unjudged",
    "Window",
    "WindowError",
    "diagnose",
    "window_of",
]
