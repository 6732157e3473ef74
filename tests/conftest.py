"""What all tests share: no property depends on the machine's speed or on chance. `make fuzz` searches at random."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kneekeeper", deadline=None, derandomize=True)
settings.load_profile("kneekeeper")
