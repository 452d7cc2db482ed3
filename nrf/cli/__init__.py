"""The command line: each command is a few lines around one function of the library.

One file per command, loaded when that command is called; heavy imports stay inside the commands, so that
`nrf --help` is quick too. Exit codes: 0 good, 1 the answer is no, 2 the input or the call is wrong.
"""

import logging
import os
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Annotated, Any

import typer

from nrf import __version__
from nrf.cli import interruption
from nrf.cli.common import Command, report_errors
from nrf.cli.memory import keep_freed_memory

COMMANDS = (
    "demo", "data", "train", "export", "check", "lower", "tune", "run", "conform", "diff", "reproduce",
    "doctor", "setup",
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        print(f"nrf {__version__}")
        raise typer.Exit()


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version)] = False,
) -> None:
    """Train spiking vision models, export them to NIR, lower them to Loihi 2 and Speck 2f,
    and prove that they still do the same thing there."""


def app_of(commands: Collection[str]) -> typer.Typer:
    """The command line with some of its commands."""
    app = typer.Typer(name="nrf", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
    app.callback()(_options)
    for name in commands:
        app.command(cls=Command)(getattr(import_module(f"nrf.cli.{name}"), name))
    return app


def __getattr__(name: str) -> Any:
    """`app`: all commands, for those who call them from Python."""
    if name != "app":
        raise AttributeError(f"module 'nrf.cli' has no attribute '{name}'")
    return app_of(COMMANDS)


def main() -> None:
    """Entry point of the `nrf` script."""
    # Before torch is imported: threads that wait for each other by spinning take 3 to 4 times as long on a
    # machine that has other work to do.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    keep_freed_memory()
    logging.basicConfig(format="%(message)s")  # to standard error
    logging.getLogger("nrf").setLevel(logging.INFO)
    interruption.heed()
    first = next((word for word in sys.argv[1:] if word != "--debug"), "")
    sys.exit(report_errors(app_of([first] if first in COMMANDS else COMMANDS)))
