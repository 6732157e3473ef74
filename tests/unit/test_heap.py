"""Freed memory goes back to the system, also from between blocks that live on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kneekeeper.handlers import heap

BLOCK_BYTES = 2048
BLOCKS = 60_000
KEPT_OF = 100


def resident_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


async def test_what_was_freed_between_living_blocks_is_given_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heap, "EVERY_S", 0.01)
    blocks = [bytes(BLOCK_BYTES) for _ in range(BLOCKS)]
    kept = blocks[::KEPT_OF]
    del blocks
    before = resident_bytes()
    task = asyncio.create_task(heap.keep_small())
    await asyncio.sleep(0.1)
    task.cancel()
    assert before - resident_bytes() > 0.5 * BLOCKS * BLOCK_BYTES
    assert len(kept) == BLOCKS // KEPT_OF
