"""A process is known by pid, start time and boot, so that no other one is ever signalled."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.cluster.errors import StartFailed
from e2e.cluster.processes import (
    ProcessFolder,
    ProcessRecord,
    ProcessStat,
    descendants,
    parse_stat,
    read_stat,
    record_of,
)

_SLEEP = ["/bin/sleep", "1000"]


@pytest.fixture
def folder(tmp_path: Path) -> ProcessFolder:
    return ProcessFolder(tmp_path / "pids", tmp_path / "log")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=15), st.integers(1, 2**22), st.integers(0, 2**40))
def test_a_stat_is_read_whatever_the_program_is_called(program: str, parent: int, start: int):
    line = f"12 ({program}) S {parent} " + " ".join("0" for _ in range(17)) + f" {start} 0 0"
    assert parse_stat(line) == ProcessStat("S", parent, start)


def test_a_record_survives_json():
    record = ProcessRecord("etcd", 12, 3456, "a-boot")
    assert ProcessRecord.from_json(record.to_json()) == record


def test_a_process_is_told_from_another_with_its_pid_and_from_one_of_an_earlier_boot():
    here = record_of("test", os.getpid())
    assert here is not None
    assert here.is_running()
    assert not replace(here, start_ticks=here.start_ticks + 1).is_running()
    assert not replace(here, boot_id="an-earlier-boot").is_running()


def test_a_process_with_a_reused_pid_is_not_signalled(folder: ProcessFolder):
    record = folder.start("sleeper", _SLEEP, {})
    replace(record, start_ticks=record.start_ticks - 1).send(signal.SIGKILL)
    assert record.is_running()
    folder.stop("sleeper", grace_s=5)
    assert not record.is_running()


def test_stopping_forgets_a_process_and_leaves_no_zombie(folder: ProcessFolder):
    record = folder.start("sleeper", _SLEEP, {})
    assert folder.records() == (record,)
    folder.stop("sleeper", grace_s=5)
    assert folder.records() == ()
    assert read_stat(record.pid) is None
    folder.stop("sleeper", grace_s=5)


def test_a_process_that_ignores_the_request_is_killed(folder: ProcessFolder):
    record = folder.start("stubborn", ["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"], {})
    log = folder.log / "stubborn.log"
    folder.wait_until(lambda: log.read_text() == "ready\n", "its first line", ("stubborn",), timeout_s=10)
    (sleeper,) = descendants(record.pid, _stats_of_group(record.pid))
    folder.stop("stubborn", grace_s=0.1)
    assert not record.is_running()
    os.kill(sleeper, signal.SIGKILL)


def test_a_process_leads_a_session_of_its_own(folder: ProcessFolder):
    record = folder.start("sleeper", _SLEEP, {})
    assert os.getsid(record.pid) == record.pid
    folder.stop("sleeper", grace_s=5)


def test_waiting_for_a_process_that_ended_shows_its_log(folder: ProcessFolder):
    folder.start("broken", ["/bin/sh", "-c", "echo no such flag; exit 1"], {})
    with pytest.raises(StartFailed, match=r"broken ended while waiting for it(.|\n)*no such flag"):
        folder.wait_until(lambda: False, "it", ("broken",), timeout_s=30)
    folder.stop("broken", grace_s=1)


def test_waiting_ends_when_time_runs_out(folder: ProcessFolder):
    folder.start("slow", _SLEEP, {})
    with pytest.raises(StartFailed, match="slow did not bring it within 0 s"):
        folder.wait_until(lambda: False, "it", ("slow",), timeout_s=0)
    folder.stop("slow", grace_s=5)


def test_a_missing_program_names_the_next_step(folder: ProcessFolder):
    with pytest.raises(StartFailed, match=r"e2e\.cluster prepare"):
        folder.start("absent", ["/nowhere/etcd"], {})


def test_descendants_are_found_parents_first():
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 2}
    stats = {pid: ProcessStat("S", parent, 0) for pid, parent in parents.items()}
    assert descendants(2, stats) == (3, 6, 4)


def _stats_of_group(pid: int) -> dict[int, ProcessStat]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child): stat for child in children if (stat := read_stat(int(child))) is not None}
