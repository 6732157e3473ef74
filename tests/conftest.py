"""What all tests share: no property depends on how fast the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kneekeeper", deadline=None)
settings.load_profile("kneekeeper")
