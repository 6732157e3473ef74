"""The main job on real vLLM, judged by a client that is not ours."""

from __future__ import annotations

import pytest

from e2e.lab import Lab
from e2e.realvllm import first_run

pytestmark = [pytest.mark.cluster, pytest.mark.vllm, pytest.mark.judged, pytest.mark.timeout(3000)]


def test_one_profile_makes_real_vllm_keep_a_promise_that_it_broke(lab: Lab, open_namespace: str):
    story = first_run.tell(lab, open_namespace)
    told = [(f"{j.settings.max_num_seqs}/{j.settings.max_num_batched_tokens}", j.result) for j in story.judged]
    assert story.kept, (story.targets, told)
