"""Ctrl-C and SIGTERM end a command wherever they arrive.

The handler of a signal raises in the Python code that happens to run. Where C has called that code, the error
may be dropped without a word: msgspec looks up types whose hash is Python code, and takes any error for "not
there". So an interruption is repeated until it is heard, but not while an exception is being handled: then
the first one was heard, and what it left is being cleaned up.
"""

import signal
import sys
from types import FrameType

AGAIN = 0.2  # seconds


def heed() -> None:
    """Take over both signals; Ctrl-C stays off where the shell has turned it off."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGALRM, _again)


def heard() -> None:
    """Repeat nothing any more."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
    raise KeyboardInterrupt


def _again(number: int, frame: FrameType | None) -> None:
    if sys.exception() is None:
        raise KeyboardInterrupt
