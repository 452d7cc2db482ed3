"""`make fuzz`: mutated files of every format, until so many of each were tried.

What came of them is counted in tests/fuzz/counted.json and docs/reliability.md; the next run goes on where
this one ended, after it has tried again what was found. Files that were found are saved in build/fuzz.
"""

import argparse
import itertools
import os
import time
from math import inf
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.fuzz import book
from tests.fuzz.engine import FINE, Outcome, case, explore
from tests.fuzz.formats import FORMATS

COLUMNS = {"read": "read", "refused": "refused", "fault": "faults", "crash": "crashes", "hang": "hangs"}
OFTEN = 20.0  # seconds between two entries


def main() -> None:
    """Explore, print what was found, save the files."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("formats", nargs="*", help=", ".join(FORMATS))
    parser.add_argument("--cases", type=int, default=1000, help="of each format, earlier ones included")
    parser.add_argument("--start", type=int, help="try these numbers again instead, and count nothing")
    parser.add_argument("--seconds", type=float, default=inf, help="per format at most")
    parser.add_argument("--save", type=Path, default=Path("build/fuzz"), help="where findings go")
    asked = parser.parse_args()
    asked.save.mkdir(parents=True, exist_ok=True)
    for name in asked.formats or FORMATS:
        begin, tried, seen = time.monotonic(), 0, set[str]()
        row = book.read("fuzz").get(name, {})
        todo = itertools.chain(map(int, row.get("open", {})), range(row.get("files", 0), asked.cases))
        if asked.start is not None:
            todo = iter(range(asked.start, asked.start + asked.cases))
        some: list[Outcome] = []
        last = time.monotonic()
        for outcome in explore(name, todo, asked.seconds):
            tried += 1
            some.append(outcome)
            if outcome.kind not in FINE:
                data, ending = case(name, outcome.number)
                (asked.save / f"{name}-{outcome.number}{ending}").write_bytes(data)
                if outcome.what not in seen:
                    print(outcome, flush=True)
                seen.add(outcome.what)
            if asked.start is None and time.monotonic() - last > OFTEN:
                count(name, some)
                some, last = [], time.monotonic()
        if asked.start is None and some:
            count(name, some)
        print(f"{name:10} {tried} files, {time.monotonic() - begin:.0f} s", flush=True)


def count(name: str, outcomes: list[Outcome]) -> None:
    """Add to the book; what was found before and is mended now counts as what it is now."""
    with book.entry("fuzz", name) as row:
        found = row.pop("open", {})
        row.setdefault("files", 0)
        for column in COLUMNS.values():
            row.setdefault(column, 0)
        for outcome in outcomes:
            if earlier := found.pop(str(outcome.number), None):
                row[COLUMNS[earlier]] -= 1
            else:
                row["files"] += 1
            row[COLUMNS[outcome.kind]] += 1
            if outcome.kind not in FINE:
                found[str(outcome.number)] = outcome.kind
        row["peak, MB"] = max(row.pop("peak, MB", 0), *(outcome.peak >> 20 for outcome in outcomes))
        first = row.pop("at", book.commit()).partition("..")[0]
        row["at"] = first if first == book.commit() else f"{first}..{book.commit()}"
        row["open"] = found


if __name__ == "__main__":
    main()
