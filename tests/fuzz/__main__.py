"""`make fuzz`: mutated files of every format.

What came of them is kept in build/fuzz/tally.json; `--write` makes the table of docs/reliability.md of it.
Files that were found are saved beside it.
"""

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.fuzz.engine import case, explore
from tests.fuzz.formats import FORMATS

PAGE, BEGIN, END = Path("docs/reliability.md"), "<!-- fuzz -->\n", "<!-- end -->"
KINDS = ("read", "refused", "fault", "crash", "hang")


def main() -> None:
    """Explore, print what was found, save the files."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("formats", nargs="*", help=", ".join(FORMATS))
    parser.add_argument("--cases", type=int, default=1000, help="per format")
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="per format at most")
    parser.add_argument("--save", type=Path, default=Path("build/fuzz"), help="where findings and counts go")
    parser.add_argument("--write", action="store_true", help="only write the table, from what was counted")
    asked = parser.parse_args()
    asked.save.mkdir(parents=True, exist_ok=True)
    book = asked.save / "tally.json"
    counted = json.loads(book.read_text()) if book.exists() else {}
    if asked.write:
        write_table(counted)
        return
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    for name in asked.formats or FORMATS:
        begin = time.monotonic()
        tally = explore(name, range(asked.start, asked.start + asked.cases), asked.seconds)
        seconds = time.monotonic() - begin
        print(f"{name:10} {dict(tally.outcomes)} peak {tally.peak >> 20} MB, {seconds:.0f} s", flush=True)
        for key, finding in sorted(tally.findings.items(), key=lambda item: -tally.times[item[0]]):
            data, ending = case(name, finding.number)
            (asked.save / f"{name}-{finding.number}{ending}").write_bytes(data)
            print(f"   {tally.times[key]:5}  #{finding.number} {key}", flush=True)
        counted[name] = {**tally.outcomes, "peak": tally.peak >> 20, "commit": commit}
        book.write_text(json.dumps(counted, indent=1))


def write_table(counted: dict[str, dict[str, int | str]]) -> None:
    """Put the table in its place."""
    lines = [
        "| format | files | read | refused | faults | crashes | hangs | peak, MB | at |",
        "|---" * 9 + "|",
    ]
    for name, row in counted.items():
        numbers = [int(row.get(kind, 0)) for kind in KINDS]
        cells = [name, f"{sum(numbers):,}", *(f"{n:,}" for n in numbers), row["peak"], row["commit"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
