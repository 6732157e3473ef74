"""Ctrl-C at bad moments: no traceback, and whoever presses it twice still gets what was measured."""

from __future__ import annotations

import signal
import subprocess
import sys

WHILE_MODULES_LOAD = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "kneekeeper.cli.approve":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from kneekeeper.cli.start import main
sys.argv = ["kneekeeper", "--version"]
sys.exit(main())
"""

WHILE_OPTIONS_ARE_READ = """
import os, signal, sys
from kneekeeper.cli import main

class Parser:
    def parse_args(self, words):
        os.kill(os.getpid(), signal.SIGINT)

main.parser_of = lambda program: Parser()
sys.exit(main.main([]))
"""

AGAIN_AND_AGAIN = """
import asyncio, os, signal
from kneekeeper.cli.terminal import Interrupted, run_until_signal

async def work():
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(60)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.01)
        print("ended")

try:
    run_until_signal(work())
except Interrupted:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
    print("told")
"""

AFTER_THE_WORK = """
import asyncio, os, signal
from kneekeeper.cli.terminal import run_until_signal

async def work():
    await asyncio.sleep(0)

run_until_signal(work())
os.kill(os.getpid(), signal.SIGTERM)
print("not reached")
"""


def run(code: str) -> tuple[int, str, str]:
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # also when run with `&`
    ended = subprocess.run(
        [sys.executable, "-c", heard + code], capture_output=True, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_while_modules_load_it_ends_the_program_without_a_word():
    assert run(WHILE_MODULES_LOAD) == (-signal.SIGINT, "", "")


def test_while_options_are_read_the_exit_code_is_that_of_an_interruption():
    assert run(WHILE_OPTIONS_ARE_READ) == (130, "", "")


def test_more_of_them_change_nothing_after_the_first():
    assert run(AGAIN_AND_AGAIN) == (0, "ended\ntold\n", "")


def test_signals_end_the_program_again_when_the_work_was_not_interrupted():
    assert run(AFTER_THE_WORK) == (-signal.SIGTERM, "", "")
