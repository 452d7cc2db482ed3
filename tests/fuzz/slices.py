"""The part of fuzzing that every test run does: half a minute for each half of the formats.

The cases are new every day and the same all day; `NRF_FUZZ_START` names others. A finding is reproduced with
`python -m tests.fuzz FORMAT --start NUMBER --cases 1`, which also saves the file; add it to found.zip then.
"""

import io
import os
import time
import zipfile
from pathlib import Path

import pytest

from tests.fuzz.engine import FINE, explore, outcome
from tests.fuzz.formats import FORMATS

FOUND = Path(__file__).parent / "found.zip"  # FORMAT-anything.ending: files that were once dealt with badly
EVENTS = ("h5", "raw", "dat", "aedat4", "npz", "csv", "dataset", "clip", "preset", "labels")
MODELS = tuple(name for name in FORMATS if name not in (*EVENTS, "call"))  # whose seeds take long
SECONDS = 30.0


def start() -> int:
    """The number of today's first case."""
    return int(os.environ.get("NRF_FUZZ_START") or int(time.time() // 86400) * 10**6)


def fuzz(name: str, formats: tuple[str, ...]) -> None:
    """A share of the half minute for one format."""
    outcomes = list(explore(name, range(start(), start() + 10**5), SECONDS / len(formats)))
    assert outcomes
    if found := {str(outcome) for outcome in outcomes if outcome.kind not in FINE}:
        pytest.fail("\n".join(sorted(found)))


def found(formats: tuple[str, ...]) -> list[str]:
    """Files that were once found, of these formats."""
    with zipfile.ZipFile(FOUND) as archive:
        return [name for name in archive.namelist() if name.partition("-")[0] in formats]


def replay(names: list[str], folder: Path) -> None:
    """Files that were found are refused, or read, as they should."""
    bad = []
    with zipfile.ZipFile(FOUND) as archive:
        for name in names:
            inside = folder / name.replace(".", "-")
            inside.mkdir()
            path = inside / f"case{Path(name).suffix}"
            path.write_bytes(io.BytesIO(archive.read(name)).getvalue())
            kind, what = outcome(name.partition("-")[0], path)
            if kind not in FINE:
                bad.append(f"{name}: {what}")
    assert not bad
