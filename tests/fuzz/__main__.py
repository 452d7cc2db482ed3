"""`make fuzz`: mutated files of every format."""

import argparse
import time
from pathlib import Path

from tests.fuzz.engine import case, explore
from tests.fuzz.formats import FORMATS


def main() -> None:
    """Explore, print what was found, save the files."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("formats", nargs="*", help=", ".join(FORMATS))
    parser.add_argument("--cases", type=int, default=1000, help="per format")
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument(
        "--save", type=Path, default=Path("build/fuzz"), help="where files that were found go"
    )
    asked = parser.parse_args()
    for name in asked.formats or FORMATS:
        begin = time.monotonic()
        tally = explore(name, range(asked.start, asked.start + asked.cases))
        seconds = time.monotonic() - begin
        print(f"{name:10} {dict(tally.outcomes)} peak {tally.peak >> 20} MB, {seconds:.0f} s", flush=True)
        for key, finding in sorted(tally.findings.items(), key=lambda item: -tally.times[item[0]]):
            asked.save.mkdir(parents=True, exist_ok=True)
            data, ending = case(name, finding.number)
            (asked.save / f"{name}-{finding.number}{ending}").write_bytes(data)
            print(f"   {tally.times[key]:5}  #{finding.number} {key}", flush=True)


if __name__ == "__main__":
    main()
