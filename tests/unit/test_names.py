"""Names of children are legal for every legal owner, follow from it, and differ between owners."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from kneekeeper.api.stage import StageSpec
from kneekeeper.domain.names import agent_name, clone_name, run_name, samples_name, stage_id
from kneekeeper.observe.run_reads import start_of

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST_LABEL, LONGEST_NAME = 63, 253


def legal(text: str) -> str:
    """The text as a DNS subdomain."""
    return re.sub(r"[-.]*\.[-.]*", ".", text).strip("-.") or "a"


runs = st.text("az09-.", min_size=1, max_size=LONGEST_LABEL).map(legal) | st.text(
    "az09-.", min_size=LONGEST_LABEL, max_size=LONGEST_LABEL
).map(legal)
starts = st.integers(1, 101)
stages = st.from_regex(r"[a-z]{1,12}-[0-9]{1,7}(-[b-z])?", fullmatch=True)


@given(run=runs, start=starts)
def test_the_names_of_a_job_and_a_pod_are_legal_as_names_and_as_labels(run: str, start: int):
    for name in (agent_name(run), clone_name(run, start)):
        assert len(name) <= LONGEST_LABEL
        assert SUBDOMAIN.fullmatch(name)


@given(run=runs, stage=stages)
def test_the_name_of_the_samples_is_legal(run: str, stage: str):
    name = samples_name(run, stage)
    assert len(name) <= LONGEST_NAME
    assert SUBDOMAIN.fullmatch(name)


@given(run=runs, start=starts)
def test_a_clones_name_tells_its_start(run: str, start: int):
    assert start_of(clone_name(run, start), run) == start


@given(profile=runs, token=st.from_regex(r"[0-9a-f]{8}", fullmatch=True))
def test_a_run_of_any_profile_has_a_name_whose_children_need_no_digest(profile: str, token: str):
    run = run_name(profile, token)
    assert SUBDOMAIN.fullmatch(run)
    assert run.endswith(f"-{token}")
    assert agent_name(run) == f"{run}-agent"
    assert clone_name(run, 100) == f"{run}-clone-100"


@given(begin=st.from_regex(r"[a-z]{57}", fullmatch=True), end=st.from_regex(r"[a-z0-9]{6}", fullmatch=True))
def test_names_that_only_differ_at_their_end_have_different_children(begin: str, end: str):
    one, other = begin + end, begin + "zzzzzz"
    assume(one != other)
    assert agent_name(one) != agent_name(other)
    assert clone_name(one, 1) != clone_name(other, 1)


@given(stage=stages, uid=st.text(min_size=1))
def test_a_stages_id_is_one_that_the_agent_takes(stage: str, uid: str):
    [rule] = [m.pattern for m in StageSpec.model_fields["id"].metadata if hasattr(m, "pattern")]
    assert re.fullmatch(rule, stage_id(stage, uid))
