"""Standard output and standard error whose reader may be gone, as after `| head -1`, or whose disk may be full.

What a command does, writes into files and answers by its exit code does not depend on who reads what it prints. What
cannot be written, such as new objects into a file on a full disk, is a failure of its own.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Descriptor(io.FileIO):
    """One that is written to while somebody reads and there is room; from then on what is written goes nowhere."""

    reader_is_gone = False
    failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                self.reader_is_gone = True
            else:
                self.failure = error
            # The descriptor itself: child processes have it too, and so has the interpreter, which flushes at its end.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


@contextmanager
def whoever_reads() -> Iterator[None]:
    """Within it no write to the standard streams raises OSError, except for a terminal that takes nothing now."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def reader_is_gone() -> bool:
    """Whether nobody reads standard output any more, as far as the writes until now have shown."""
    raw = _raw_output()
    return raw is not None and raw.reader_is_gone


def why_unwritten() -> str | None:
    """Why not all of standard output was written though somebody wants it; None where it was, or nobody reads it."""
    raw = _raw_output()
    if raw is None:
        return None
    sys.stdout.flush()
    return None if raw.failure is None else raw.failure.strerror


def _raw_output() -> _Descriptor | None:
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Descriptor) else None


def _lasting(stream: TextIO | None) -> TextIO:
    """The same descriptor with the same encoding; what is no descriptor, such as a buffer of a test, stays."""
    if stream is None:  # closed before the start, as by `>&-`
        return open(os.devnull, "w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        descriptor = stream.fileno()
    except OSError:
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Descriptor(descriptor, "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
