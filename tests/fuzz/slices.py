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

from tests.fuzz.engine import explore, outcome
from tests.fuzz.formats import FORMATS

FOUND = Path(__file__).parent / "found.zip"  # FORMAT-anything.ending: files that were once dealt with badly
EVENTS = ("h5", "raw", "dat", "aedat4", "npz", "csv", "dataset", "clip", "preset")
MODELS = tuple(name for name in FORMATS if name not in EVENTS)
SECONDS = 30.0


def start() -> int:
    """The number of today's first case."""
    return int(os.environ.get("NRF_FUZZ_START") or int(time.time() // 86400) * 10**6)


def fuzz(name: str, formats: tuple[str, ...]) -> None:
    """A share of the half minute for one format."""
    tally = explore(name, range(start(), start() + 10**5), SECONDS / len(formats))
    assert sum(tally.outcomes.values()) > 0
    if tally.findings:
        pytest.fail("\n".join(map(str, tally.findings.values())))


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
            if kind not in ("read", "refused"):
                bad.append(f"{name}: {what}")
    assert not bad
