"""Where the program begins: Ctrl-C while its modules load ends it without a word, as it ends any program."""

from __future__ import annotations

import signal


def main() -> int:
    """Load the commands and run one. Returns its exit code."""
    loud = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if loud:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kneekeeper.cli.main import main as run

    if loud:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()
