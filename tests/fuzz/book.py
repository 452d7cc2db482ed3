"""What was tried and what came of it: counted.json beside this, and the tables of docs/reliability.md.

Runs add up, and several may run at once: each holds the file only while it adds to it.
"""

import fcntl
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nrf.files import atomic_write

BOOK, PAGE = Path(__file__).parent / "counted.json", Path(__file__).parents[2] / "docs" / "reliability.md"
Table = dict[str, Any]


def commit() -> str:
    """Of the code that is tried."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=False, cwd=PAGE.parent).stdout.strip()


def read(part: str) -> Table:
    """One part of the book: fuzz, kills, load or calls."""
    table: Table = json.loads(BOOK.read_text()) if BOOK.exists() else {}
    return dict(table.get(part, {}))


@contextmanager
def entry(part: str, name: str) -> Iterator[Table]:
    """An entry to add to; it and the tables are written when the block ends."""
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        book: Table = json.loads(BOOK.read_text()) if BOOK.exists() else {}
        row = book.setdefault(part, {}).setdefault(name, {})
        yield row
        with atomic_write(BOOK) as file:
            file.write_text(json.dumps(book, indent=1) + "\n")
        _write_page(book)


def _write_page(book: Table) -> None:
    page = PAGE.read_text()
    for part, rows in book.items():
        columns = list(dict.fromkeys(key for row in rows.values() for key in _cells(row)))
        lines = [f"| {' | '.join([part, *columns])} |", "|---" * (1 + len(columns)) + "|"]
        for name, row in rows.items():
            cells = _cells(row)
            lines.append("| " + " | ".join([name, *(cells.get(key, "") for key in columns)]) + " |")
        before, mark, rest = page.partition(f"<!-- {part} -->\n")
        if mark:
            page = before + mark + "\n".join(lines) + "\n<!-- end -->" + rest.partition("<!-- end -->")[2]
    with atomic_write(PAGE) as file:
        file.write_text(page)


def _cells(row: Table) -> dict[str, str]:
    """What is shown of an entry: numbers and words, no lists."""
    shown = {key: value for key, value in row.items() if isinstance(value, int | float | str)}
    return {key: f"{value:,}" if isinstance(value, int | float) else value for key, value in shown.items()}
