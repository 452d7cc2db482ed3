"""What all commands share: error lines, tables, JSON."""

import json
import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO

import typer
from typer.core import TyperCommand

from nrf.cli import interruption
from nrf.errors import InputError, printable

Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for machines.")]
Calibrate = Annotated[list[Path] | None, typer.Option(help="Clips or folders to choose scales on.")]
NUMBER = re.compile(r"[<>=]{0,2} ?-?[\d,]*\.?\d+(e[+-]\d+)?%?")
GAP = 2  # columns of the terminal between two of a table
LONGEST_WORD = 24  # that a column keeps whole; longer ones, paths for example, may break
COLOURS = {
    "pass": "green", "good": "green", "fail": "red", "broken": "red", "error": "red",
    "not applicable": "bright_black", "no verdict": "yellow", "absent": "yellow", "warning": "yellow",
}  # fmt: skip


class Command(TyperCommand):
    """A command whose help shows flags as they are typed: `--json`, and not `--json <bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters; flags take no value."""
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


def report_errors(app: Callable[..., Any]) -> int:
    """Run the app; turn every error into one line and an exit code. `--debug` shows the traceback."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    try:
        code = app(standalone_mode=False)  # typer.Exit comes back as its number
        sys.stdout.flush()  # here, where a closed pipe is no error
        return _complain("interrupted", debug, 130) if code == 130 else code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", debug, 130)
    except SystemExit as error:  # how typer ends when the reader of a pipe has gone
        return 0 if isinstance(error.__context__, BrokenPipeError) else int(error.code or 0)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help itself
            print(error.format_message(), file=sys.stderr)
            return 2
        return _complain(f"{error.format_message()} (see nrf --help)", debug, 2)
    except InputError as error:
        return _complain(str(error), debug, 2)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
        return 0
    except Exception as error:
        text = printable(f"{type(error).__name__}: {error}".splitlines()[0])
        return _complain(f"a fault in nrf itself: {text}; --debug shows where", debug, 70)
    finally:
        interruption.heard()


def _complain(text: str, debug: bool, code: int) -> int:
    if debug:
        traceback.print_exc()
    say(f"error: {text}", sys.stderr)
    return code


def say(text: str, file: TextIO | None = None) -> None:
    """Lines in the width of the terminal, or in COLUMNS, cut between words; whole where neither is known.

    Names may come from files: nothing in them moves the cursor.
    """
    file = file or sys.stdout
    stated = os.environ.get("COLUMNS", "")
    width = int(stated) if stated.isdigit() else shutil.get_terminal_size().columns if file.isatty() else 0
    wrap = textwrap.TextWrapper(
        width or 1, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    for line in map(printable, text.splitlines()):
        print(wrap.fill(line) if width else line, file=file)


def print_json(answer: Any) -> None:
    """Write `answer` to standard output as JSON, for machines."""
    json.dump(answer, sys.stdout, indent=2, default=str)
    sys.stdout.write(os.linesep)


@contextmanager
def progress_lines() -> Iterator[Callable[[str], None]]:
    """Give a function that shows what is going on: one changing line on a terminal, plain lines in a log."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda line: print(line, file=sys.stderr, flush=True)
        return
    with console.status("") as status:
        yield lambda line: status.update(escape(line[: console.width - 4]))


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Give a function of how many are done, and of how many: a bar on a terminal, silence in a log."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def print_table(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A table in the terminal's width; in COLUMNS, else in 100 columns, where nobody watches.

    None is an empty cell, floats are cut to four digits, columns of numbers are aligned to the right, and
    nothing in a cell is markup or moves the cursor. Words stay whole: where the columns do not fit side by
    side, every row becomes a list. Verdicts and states have colours.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    titles, cells = list(titles), [[printable(_cell(value)) for value in row] for row in rows]
    watched = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    console = Console(width=None if watched else 100)
    columns = [[row[n] for row in cells] for n in range(len(titles))]
    for gap in (GAP, 1):
        widths = _column_widths(titles, columns, console.width - gap * (len(titles) - 1))
        if widths:
            break
    else:
        for row in cells:
            for title, cell in zip(titles, row, strict=True):
                if cell:
                    console.print(Text(f"{title}: " if title else "") + Text(cell, COLOURS.get(cell, "")))
            console.print()
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap - 1, 0, 0))
    for title, column, fixed in zip(titles, columns, widths, strict=True):
        numeric = any(column) and all(NUMBER.fullmatch(cell) for cell in column if cell)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(Text(title), overflow="fold", justify=justify, width=fixed)
    for row in cells:
        table.add_row(*(Text(cell, COLOURS.get(cell, "")) for cell in row))
    console.print(table)


def _column_widths(titles: list[str], columns: list[list[str]], room: int) -> list[int] | None:
    """Characters per column: its longest word at least, its longest cell at most; None if words do not fit.

    What is left over is shared evenly between the columns that can use it. rich's own sharing cuts words.
    """
    texts = [[title, *column] for title, column in zip(titles, columns, strict=True)]
    most = [max(map(len, cells)) for cells in texts]
    words = [[len(word) for cell in cells for word in cell.split()] for cells in texts]
    widths = [min(max(lengths, default=1), LONGEST_WORD) for lengths in words]
    spare = room - sum(widths)
    if spare < 0:
        return None
    by_need = sorted(range(len(titles)), key=lambda n: most[n] - widths[n])
    for done, n in enumerate(by_need):
        more = min(most[n] - widths[n], spare // (len(titles) - done))
        widths[n] += max(more, 0)
        spare -= max(more, 0)
    return widths


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"
