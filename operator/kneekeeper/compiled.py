"""The twin's machine code from the image, where numba finds it.

An image holds the code, compiled when it was built. Numba only reads a cache that it may also write to, and a pod's
root file system is read-only: so the code is copied to the writable cache before the kernel is
called.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)

COMPILED = "KNEEKEEPER_COMPILED"
"""Variable with the folder of the image."""

CACHE = "NUMBA_CACHE_DIR"
"""Numba's variable with its cache."""


def unpack(environment: Mapping[str, str]) -> None:
    """Copy the image's code into numba's cache; without either variable nothing is done.

    Where it cannot be copied the kernel is compiled by the first tick that needs it, which takes it longer.
    """
    source, cache = environment.get(COMPILED), environment.get(CACHE)
    if not source or not cache or not Path(source).is_dir():
        return
    try:
        shutil.copytree(source, cache, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        log.warning("the twin will be compiled anew: %s. Mount a writable folder at %s", error, cache)
