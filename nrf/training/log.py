"""What a training run says while it goes on: a CSV file, and a bar on a terminal or lines elsewhere."""

import csv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TextIO

from nrf.errors import InputError
from nrf.files import atomic_write


@dataclass(frozen=True)
class Row:
    """One step of training."""

    step: int  # counts from 1
    phase: str  # frames (pre-training) | time
    loss: float
    error: float  # pixels, on the clips of this step
    firing: float  # spikes per neuron and step
    rate: float  # learning rate
    held_out: float | None = None  # pixels, on the held-out clips, where measured
    seconds: float = 0.0  # since the run started


class Log:
    """The CSV file of a run. Resuming keeps the rows up to a step and goes on after them."""

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        names = [field.name for field in fields(Row)]
        rows = []
        if keep and path.exists():
            with path.open(newline="") as file:
                rows = [row for row in csv.reader(file) if row and row[0].isdigit() and int(row[0]) <= keep]
        with atomic_write(path) as part, part.open("w", newline="") as file:
            csv.writer(file).writerows([names, *rows])

    def write(self, row: Row) -> None:
        """Append a row."""
        try:
            with self.path.open("a", newline="") as file:
                csv.writer(file).writerow(["" if value is None else value for value in asdict(row).values()])
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror or error}") from error


def outcome(summary: Mapping[str, Any], total: int) -> str:
    """How a run ended, in a line: the error, and whether its time was over before its last step.

    >>> outcome({"error": 2.0, "centre_error": 17.0, "held_out_clips": 8, "step": 261}, 440)
    'held-out error 2.00 px on 8 clips (guessing the centre: 17.00 px); out of time after step 261 of 440'
    """
    error, centre, clips = (summary[key] for key in ("error", "centre_error", "held_out_clips"))
    early = f"; out of time after step {summary['step']} of {total}" if summary["step"] < total else ""
    return f"held-out error {error:.2f} px on {clips} clips (guessing the centre: {centre:.2f} px){early}"


@contextmanager
def progress(total: int, stream: TextIO, every: int = 25) -> Iterator[Callable[[Row], None]]:
    """A function to show rows with: a bar if `stream` is a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn

    held_out: float | None = None

    def print_line(row: Row) -> None:
        if row.held_out is not None or row.step % every == 0 or row.step in (1, total):
            print(f"{row.phase} {row.step}/{total}: {_figures(row)}", file=stream, flush=True)

    def move_bar(row: Row) -> None:
        nonlocal held_out
        held_out = row.held_out if row.held_out is not None else held_out
        figures = _figures(replace(row, held_out=held_out))
        bar.update(task, completed=row.step, description=row.phase, figures=figures)

    if not stream.isatty():
        yield print_line
        return
    columns = Progress.get_default_columns()
    figures = TextColumn("{task.fields[figures]}")
    with Progress(*columns, MofNCompleteColumn(), figures, console=Console(file=stream)) as bar:
        task = bar.add_task("train", total=total, figures="")
        yield move_bar


def _figures(row: Row) -> str:
    held_out = f", held out {row.held_out:.2f} px" if row.held_out is not None else ""
    return f"loss {row.loss:.3f}, error {row.error:.2f} px, firing {row.firing:.3f}{held_out}"
