"""What all tests share: no property depends on the machine's speed or on chance. `make fuzz` searches at random."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("kneekeeper", deadline=None, derandomize=True)
settings.load_profile("kneekeeper")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests may take longest come first, so that at the end no worker waits long for another one."""
    longest: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0.0), marker.args[0] if marker else 0.0)
    items.sort(key=lambda item: -longest[item.path])
