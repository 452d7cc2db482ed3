"""What all commands share: error lines, tables, JSON."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

from nrf.errors import InputError


def report_errors(app: Callable[..., Any]) -> int:
    """Run the app; turn every error into one line and an exit code. `--debug` shows the traceback."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    try:
        app(standalone_mode=False)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except typer.Abort:
        return 130
    except InputError as error:
        if debug:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def print_json(answer: Any) -> None:
    """Write `answer` to standard output as JSON, for machines."""
    json.dump(answer, sys.stdout, indent=2, default=str)
    sys.stdout.write(os.linesep)
