"""The engine sees what it is there to see."""

import mmap
import os
import signal
from pathlib import Path

import pytest

from nrf.errors import InputError
from tests.fuzz import engine
from tests.fuzz.formats import Format


def _use(path: Path) -> None:
    match path.read_text():
        case "refuse":
            raise InputError(f"{path}: not this")
        case "fail":
            raise KeyError("x")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "turn":
            while True:
                pass
        case "take":
            fresh = mmap.mmap(-1, engine.SMALL - engine._memory("VmRSS") + (16 << 20))
            for page in range(0, len(fresh), mmap.PAGESIZE):  # malloc might give freed ones that were kept
                fresh[page] = 1


def test_every_end_of_a_case_is_told_and_the_next_child_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seed = tmp_path / "seed.txt"
    seed.write_text("fine")
    words = ["fine", "die", "refuse", "fail", "turn", "take", "fine", "die"]
    monkeypatch.setitem(engine.FORMATS, "toy", Format((seed,), lambda rng, data: data, _use))
    monkeypatch.setattr(engine, "case", lambda name, number: (words[number].encode(), ".txt"))
    monkeypatch.setattr(engine, "SECONDS", 3)
    # Other tests may have loaded much here. A child has it too, but for mapped files, of which it maps again
    # what it uses: counted with them, it would have to fill some 100 MB more within its seconds.
    small = engine._memory("RssAnon") + (192 << 20)
    monkeypatch.setattr(engine, "SMALL", small)
    monkeypatch.setattr(engine, "MEMORY", small + (32 << 30))  # of addresses, of which torch alone has many
    outcomes = list(engine.explore("toy", range(len(words))))
    kinds = ["read", "crash", "refused", "fault", "hang", "fault", "read", "crash"]
    assert [outcome.number for outcome in outcomes] == list(range(len(words)))
    assert [outcome.kind for outcome in outcomes] == kinds
    assert outcomes[1].what == "SIGKILL" and "2 GB" in outcomes[5].what
    assert outcomes[6].peak < small  # the peak is that of one case
