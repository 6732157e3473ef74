"""Samples are stored within bounds: all of them, or all SLO misses with a uniform sample of the rest."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kneekeeper.actuate.samples import build_samples, pack, unpack
from kneekeeper.api.stage import Outcome, Samples, Slo
from tests.unit.kube_objects import tuning_run

SLO = Slo(ttft_s=0.5)


def samples(rows: int, slow: int = 0, seed: int = 1) -> Samples:
    """`slow` rows miss the SLO; rows stand in the order in which requests ended, not in which they were sent."""
    draw = random.Random(seed)
    intended = [draw.uniform(0, 100) for _ in range(rows)]
    first = [t + (0.9 if row < slow else draw.uniform(0.01, 0.4)) for row, t in enumerate(intended)]
    return Samples(
        warmup_s=1.5,
        intended_s=intended,
        sent_s=[t + 1e-4 for t in intended],
        first_s=first,
        last_s=[t + draw.uniform(0.1, 1) for t in first],
        prompt_tokens=[draw.randint(1, 2000) for _ in range(rows)],
        output_tokens=[draw.randint(1, 200) for _ in range(rows)],
        first_chunk_tokens=[1] * rows,
        chunks=[draw.randint(1, 200) for _ in range(rows)],
        outcome=[Outcome.OK] * rows,
    )


def test_what_fits_is_stored_whole_to_the_microsecond():
    original = samples(50)
    packed = pack(original, SLO)
    stored = unpack(packed.data)
    assert packed.note == ""
    assert stored.first_s == [round(t, 6) for t in original.first_s]
    assert stored.output_tokens == original.output_tokens
    assert stored.warmup_s == original.warmup_s


def test_what_does_not_fit_keeps_every_miss_and_says_so():
    original = samples(2000, slow=40)
    packed = pack(original, SLO, largest_bytes=16_000)
    stored = unpack(packed.data)
    assert len(packed.data) <= 16_000
    missed = [f for f, i in zip(stored.first_s, stored.intended_s, strict=True) if f - i > 0.5]
    assert len(missed) == 40
    assert len(stored.intended_s) > 200
    assert packed.note.startswith(f"{len(stored.intended_s)} of 2000 requests: all 40 SLO misses")


def test_rows_stay_whole_and_in_their_order():
    original = samples(2000, slow=40)
    stored = unpack(pack(original, SLO, largest_bytes=16_000).data)
    rows = list(zip(stored.intended_s, stored.last_s, stored.chunks, strict=True))
    all_rows = [
        (round(i, 6), round(last, 6), chunks)
        for i, last, chunks in zip(original.intended_s, original.last_s, original.chunks, strict=True)
    ]
    positions = [all_rows.index(row) for row in rows]
    assert positions == sorted(positions)


def test_when_even_the_misses_do_not_fit_that_is_said():
    packed = pack(samples(2000, slow=2000), SLO, largest_bytes=8_000)
    assert len(packed.data) <= 8_000
    assert "a uniform sample of the SLO misses" in packed.note


def test_packing_twice_gives_the_same_bytes():
    original = samples(2000, slow=40)
    assert pack(original, SLO, largest_bytes=9_000) == pack(original, SLO, largest_bytes=9_000)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 400), st.integers(0, 400), st.integers(2_000, 20_000))
def test_no_stage_is_ever_larger_than_the_bound(rows, slow, largest_bytes):
    packed = pack(samples(rows, slow=min(rows, slow)), SLO, largest_bytes=largest_bytes)
    assert len(packed.data) <= largest_bytes
    assert len(unpack(packed.data).intended_s) <= rows


@pytest.mark.parametrize("rows", [10, 2000])
def test_the_config_map_is_the_runs_immutable_and_marked_when_not_whole(rows):
    packed = pack(samples(rows), SLO, largest_bytes=9_000)
    made = build_samples(tuning_run(), "ramp-8", packed)
    assert made["metadata"]["name"] == "chat-1-ramp-8"
    assert made["metadata"]["labels"]["kneekeeper.io/role"] == "samples"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-chat-1"
    assert made["immutable"] is True
    assert made["binaryData"] == {"samples.json.gz": packed.data}
    assert ("kneekeeper.io/sampled" in made["metadata"]["annotations"]) is (rows == 2000)
