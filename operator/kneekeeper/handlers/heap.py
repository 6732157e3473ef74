"""Keeps the process as small as what it holds.

kopf reads all objects of a kind at once, and a large fleet's are hundreds of MiB for a moment. The C library keeps
freed blocks between living ones for itself, which was most of the heap with 1,000 profiles (`make bench-scale`).
"""

from __future__ import annotations

import asyncio
import ctypes
import sys

EVERY_S = 60.0


async def keep_small() -> None:
    """Give the pages of freed blocks back to the system, for ever; does nothing without the GNU C library."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    while trim is not None:
        await asyncio.sleep(EVERY_S)
        trim(0)
