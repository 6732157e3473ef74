"""The page without a cluster: objects as YAML or JSON in a folder, read again when a file changes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import orjson
import yaml

from kneekeeper.dashboard.resources import put
from kneekeeper.dashboard.store import Store
from kneekeeper.domain.views.key import Key
from kneekeeper.kube.resources import EVENTS, SERVING_PROFILES, TUNING_RUNS, Resource

log = logging.getLogger(__name__)

POLL_S = 0.5
SUFFIXES = (".yaml", ".yml", ".json")
_KINDS = (SERVING_PROFILES.name, TUNING_RUNS.name, EVENTS.name)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml is there


class FolderError(Exception):
    """The folder cannot be shown. The message has the next step."""


class Folder:
    """All objects of a folder's files. Lists (`kubectl get -o yaml`) are read as what they hold."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise FolderError(f"{path} is no folder: give one with ServingProfiles and TuningRuns as YAML.")
        self._path = path
        self._seen: dict[Path, tuple[int, int]] = {}
        self._objects: dict[Path, list[Resource]] = {}

    def load(self, store: Store) -> None:
        """Read what changed; what is in no file any more is gone from the store. Raises OSError."""
        stamps = {p: (s.st_mtime_ns, s.st_size) for p in self._files() for s in [p.stat()]}
        if stamps == self._seen:
            return
        for path in self._objects.keys() - stamps.keys():
            del self._objects[path]
        for path, stamp in stamps.items():
            if self._seen.get(path) != stamp:
                self._read(path)
        self._seen = stamps
        kept: dict[str, set[Key]] = {kind: set() for kind in _KINDS}
        every = [each for objects in self._objects.values() for each in objects if each.get("kind") in kept]
        for each in every:
            key = put(store, each)
            if key is not None:
                kept[each["kind"]].add(key)
        store.keep_profiles(kept[SERVING_PROFILES.name])
        store.keep_runs(kept[TUNING_RUNS.name])

    async def follow(self, store: Store, every_s: float = POLL_S) -> None:
        """Load for ever."""
        while True:
            try:
                self.load(store)
            except OSError as error:
                log.warning("the folder cannot be read: %s", error)
            await asyncio.sleep(every_s)

    def _files(self) -> list[Path]:
        return sorted(path for path in self._path.iterdir() if path.suffix in SUFFIXES)

    def _read(self, path: Path) -> None:
        """A file that is no YAML leaves what was known from it: it may be half written."""
        try:
            if path.suffix == ".json":
                found = [orjson.loads(path.read_bytes())]
            else:
                found = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=_LOADER))
        except (yaml.YAMLError, orjson.JSONDecodeError, UnicodeDecodeError) as error:
            log.warning("%s cannot be read: %s", path, error)
            return
        documents = [each for each in found if isinstance(each, dict)]
        self._objects[path] = [item for each in documents for item in each.get("items", [each])]
