"""A stage's samples as an immutable ConfigMap of bounded size, so that the evidence outlives the agent."""

from __future__ import annotations

import base64
import gzip
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kneekeeper.api.stage import Samples, Slo
from kneekeeper.api.tuning_run import TuningRun
from kneekeeper.domain.names import ROLE_SAMPLES, samples_name
from kneekeeper.domain.samples import StageData
from kneekeeper.kube.children import child_labels, owner_reference
from kneekeeper.kube.resources import CONFIG_MAPS, TUNING_RUNS, Resource

SAMPLES_KEY = "samples.json.gz"
LARGEST_DATA_BYTES = 512 * 1024
"""Of the base64 text; half of what an object of Kubernetes may have."""

ANNOTATION_SAMPLED = "kneekeeper.io/sampled"

_DECIMALS = 6  # microseconds; what is beyond them is noise that does not compress
_TIMES = ("intended_s", "sent_s", "first_s", "last_s")
# Aim a little below the limit: a random part compresses a little worse than the whole.
_AIM = 0.9


@dataclass(frozen=True)
class PackedSamples:
    """Compressed JSON of `Samples`; `note` tells what was left out, empty when nothing was."""

    data: str
    note: str


def pack(samples: Samples, *slos: Slo, largest_bytes: int = LARGEST_DATA_BYTES) -> PackedSamples:
    """All rows if they fit, else all that missed the SLO (of their class, in a mix) and a uniform sample of the
    others.

    The draw depends on the number of rows alone: packing the same stage again gives the same bytes.
    """
    rounded = samples.model_copy(
        update={name: [round(t, _DECIMALS) for t in getattr(samples, name)] for name in _TIMES}
    )
    rows = len(samples.intended_s)
    data = _compressed(rounded)
    if len(data) <= largest_bytes:
        return PackedSamples(data, "")
    misses = _misses(samples, slos)
    others = [row for row in range(rows) if row not in misses]
    order = random.Random(rows)
    order.shuffle(others)
    ranked = [*order.sample(sorted(misses), len(misses)), *others]
    kept = rows
    while len(data) > largest_bytes and kept > 0:
        kept = min(kept - 1, int(kept * _AIM * largest_bytes / len(data)))
        data = _compressed(_rows(rounded, sorted(ranked[:kept])))
    which = (
        f"all {len(misses)} SLO misses and a uniform sample of the others"
        if kept >= len(misses)
        else "a uniform sample of the SLO misses"
    )
    return PackedSamples(data, f"{kept} of {rows} requests: {which}")


def unpack(data: str) -> Samples:
    """The inverse of `pack`, for what was kept."""
    return Samples.model_validate_json(gzip.decompress(base64.b64decode(data)))


def build_samples(run: TuningRun, stage: str, packed: PackedSamples) -> Resource:
    """The ConfigMap of one stage."""
    name = run.metadata["name"]
    annotations = {ANNOTATION_SAMPLED: packed.note} if packed.note else {}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.name,
        "metadata": {
            "name": samples_name(name, stage),
            "namespace": run.metadata["namespace"],
            "labels": child_labels(name, ROLE_SAMPLES),
            "annotations": annotations,
            "ownerReferences": [owner_reference(TUNING_RUNS, run.metadata)],
        },
        "immutable": True,
        "binaryData": {SAMPLES_KEY: packed.data},
    }


def _misses(samples: Samples, slos: Sequence[Slo]) -> set[int]:
    """Rows that missed the SLO. `StageData` sorts by intended time, so the rows are sorted alike."""
    missed = StageData.from_wire(samples).misses_of_mix(slos)
    order = np.argsort(np.asarray(samples.intended_s, dtype=np.float64), kind="stable")
    return {int(row) for row in order[missed]}


def _rows(samples: Samples, rows: list[int]) -> Samples:
    columns = {
        name: [value[row] for row in rows]
        for name in Samples.model_fields
        if isinstance(value := getattr(samples, name), list) and value
    }
    return samples.model_copy(update=columns)


def _compressed(samples: Samples) -> str:
    text = samples.model_dump_json().encode()
    return base64.b64encode(gzip.compress(text, mtime=0)).decode()
