"""Long-lived processes that outlive the command that started them, and are found again by pid and start time."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from e2e.cluster.errors import StartFailed

_SHOWN_LOG_CHARS = 3000
_POLL_S = 0.1


@dataclass(frozen=True)
class ProcessStat:
    """What /proc/PID/stat says of a process."""

    state: str
    parent_pid: int
    start_ticks: int
    """Clock ticks between the machine's boot and the process's start."""


@dataclass(frozen=True)
class ProcessRecord:
    """Names one process for good: a pid is used again, but not with the same start time in the same boot."""

    name: str
    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def from_json(cls, text: str) -> "ProcessRecord":
        """The inverse of `to_json`."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    def is_running(self) -> bool:
        """Whether that very process still runs; one that ended and was not yet waited for does not."""
        if self.boot_id != read_boot_id():
            return False
        stat = read_stat(self.pid)
        return stat is not None and stat.start_ticks == self.start_ticks and stat.state not in {"Z", "X"}

    def send(self, number: signal.Signals) -> None:
        """Signals the process if it still runs, never another one with its pid."""
        if self.is_running():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


def parse_stat(text: str) -> ProcessStat:
    """Reads /proc/PID/stat; the program's name in it may hold spaces and parentheses."""
    fields = text[text.rindex(")") + 1 :].split()
    return ProcessStat(state=fields[0], parent_pid=int(fields[1]), start_ticks=int(fields[19]))


def read_stat(pid: int) -> ProcessStat | None:
    """The stat of a process, None when there is none with that pid."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def read_boot_id() -> str:
    """An identifier of the machine's present boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def record_of(name: str, pid: int) -> ProcessRecord | None:
    """A record of a process that runs now; None when it has ended already."""
    stat = read_stat(pid)
    return None if stat is None else ProcessRecord(name, pid, stat.start_ticks, read_boot_id())


def all_stats() -> dict[int, ProcessStat]:
    """Every process of the machine that this one may see."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid: stat for pid in pids if (stat := read_stat(pid)) is not None}


def descendants(pid: int, stats: Mapping[int, ProcessStat]) -> tuple[int, ...]:
    """The pids of a process's children, their children, and so on, parents first."""
    found = [pid]
    for parent in found:
        found.extend(child for child, stat in stats.items() if stat.parent_pid == parent)
    return tuple(found[1:])


@dataclass(frozen=True)
class ProcessFolder:
    """The processes of one cluster: records in one folder, logs in another."""

    pids: Path
    log: Path

    def start(self, name: str, argv: Sequence[str | Path], environment: Mapping[str, str]) -> ProcessRecord:
        """Starts a program in a session of its own, so that it survives this one, and writes its record."""
        self.pids.mkdir(parents=True, exist_ok=True)
        self.log.mkdir(parents=True, exist_ok=True)
        arguments = [str(argument) for argument in argv]
        output = os.open(self.log / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            # posix_spawn rather than Popen: nobody waits for these, and Popen objects complain about that.
            pid = os.posix_spawn(
                arguments[0],
                arguments,
                dict(environment),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, nothing, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                ],
                setsid=True,
            )
        except FileNotFoundError as missing:
            raise StartFailed(f"{arguments[0]} is missing; run `python -m e2e.cluster prepare`") from missing
        finally:
            os.close(output)
            os.close(nothing)
        record = record_of(name, pid)
        if record is None:
            raise StartFailed(self.explain(name, "ended at once"))
        (self.pids / f"{name}.json").write_text(record.to_json())
        return record

    def records(self) -> tuple[ProcessRecord, ...]:
        """All that was started and not yet stopped, by name."""
        return tuple(ProcessRecord.from_json(file.read_text()) for file in sorted(self.pids.glob("*.json")))

    def stop(self, name: str, grace_s: float) -> None:
        """Asks a process to end, kills it after `grace_s`, and forgets it. Does nothing if it never ran."""
        file = self.pids / f"{name}.json"
        if not file.exists():
            return
        record = ProcessRecord.from_json(file.read_text())
        record.send(signal.SIGTERM)
        if not _wait_gone(record, grace_s):
            record.send(signal.SIGKILL)
            _wait_gone(record, grace_s)
        file.unlink()

    def explain(self, name: str, what: str) -> str:
        """An error message about a process: what happened, the end of its log, and where all of it is."""
        file = self.log / f"{name}.log"
        tail = file.read_text(errors="replace")[-_SHOWN_LOG_CHARS:] if file.exists() else "(no log)"
        return f"{name} {what}; its log is {file} and ends with:\n{tail}"

    def wait_until(self, ready: Callable[[], bool], what: str, needs: Sequence[str], timeout_s: float) -> None:
        """Returns when `ready()`; raises `StartFailed` when a process in `needs` ends or time runs out."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            for record in self.records():
                if record.name in needs and not record.is_running():
                    raise StartFailed(self.explain(record.name, f"ended while waiting for {what}"))
            if time.monotonic() > deadline:
                raise StartFailed(self.explain(needs[-1], f"did not bring {what} within {timeout_s:g} s"))
            time.sleep(_POLL_S)


def _wait_gone(record: ProcessRecord, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while record.is_running():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S / 2)
    reap(record.pid)
    return True


def reap(pid: int) -> None:
    """Collects an ended child of this process, so that no zombie stays; others' children are left to them."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
