"""What takes minutes says what it is when it begins, and once a minute that it goes on.

Silent unless somebody listens: tests do not, the demo and `python -m e2e.cluster` do.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

_LOG = logging.getLogger(__name__)
_REMIND_S = 60.0


@contextmanager
def told(what: str, *, remind_s: float = _REMIND_S) -> Iterator[None]:
    """Tells `what` is done, and that it still is each `remind_s` until the block ends."""
    over = Event()

    def remind() -> None:
        while not over.wait(remind_s):
            _LOG.info("Still: %s", what)

    _LOG.info(what)
    thread = Thread(target=remind, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def tell_with(say: Callable[[str], None]) -> None:
    """From now on, what is told goes to `say`."""

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    _LOG.addHandler(Teller())
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False
