"""An interruption is heard wherever it arrives, once."""

import signal
import subprocess
import sys

import pytest

DROPPED = """
import ctypes

class Key:
    def __hash__(self):
        os.kill(os.getpid(), NUMBER)
        return 1

look_up = ctypes.pythonapi.PyDict_GetItem  # which drops every error
look_up.argtypes, look_up.restype = [ctypes.py_object] * 2, ctypes.c_void_p

def work():
    assert look_up({}, Key()) is None
    print("dropped", flush=True)
    time.sleep(30)
"""
CLEANING = """
def work():
    try:
        os.kill(os.getpid(), NUMBER)
        time.sleep(30)
    finally:
        with suppress(ValueError):
            time.sleep(4 * interruption.AGAIN)
            raise ValueError
        print("clean", flush=True)
"""
FRAME = """
import os, signal, sys, time
from contextlib import suppress
from nrf.cli import interruption
from nrf.cli.common import report_errors
interruption.heed()
code = report_errors(lambda standalone_mode: work())
time.sleep(2 * interruption.AGAIN)
sys.exit(code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("work", "said"), [(DROPPED, "dropped"), (CLEANING, "clean")])
def test_it_ends_a_command_though_c_drops_errors_and_leaves_what_cleans_up_alone(
    work: str, said: str, number: signal.Signals
) -> None:
    code = work.replace("NUMBER", f"signal.{number.name}") + FRAME
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stdout.strip()) == (130, said)
    assert ended.stderr.strip() == "error: interrupted"
