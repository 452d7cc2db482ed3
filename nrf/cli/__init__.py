"""The command line: each command is a few lines around one function of the library.

One file per command. Heavy imports stay inside the commands, so that `nrf --help` is quick.
Exit codes: 0 good, 1 the answer is no, 2 the input or the call is wrong.
"""

import logging
import os
import signal
import sys
from typing import Annotated

import typer

from nrf import __version__
from nrf.cli.check import check
from nrf.cli.common import Command, report_errors
from nrf.cli.conform import conform
from nrf.cli.data import data
from nrf.cli.demo import demo
from nrf.cli.diff import diff
from nrf.cli.doctor import doctor
from nrf.cli.export import export
from nrf.cli.lower import lower
from nrf.cli.reproduce import reproduce
from nrf.cli.run import run
from nrf.cli.setup import setup
from nrf.cli.train import train
from nrf.cli.tune import tune

app = typer.Typer(name="nrf", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
for command in (demo, data, train, export, check, lower, tune, run, conform, diff, reproduce, doctor, setup):
    app.command(cls=Command)(command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"nrf {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.", callback=_version)] = False,
) -> None:
    """Train spiking vision models, export them to NIR, lower them to Loihi 2 and Speck 2f,
    and prove that they still do the same thing there."""


def main() -> None:
    """Entry point of the `nrf` script."""
    # Before torch is imported: threads that wait for each other by spinning take 3 to 4 times as long on a
    # machine that has other work to do.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    logging.basicConfig(format="%(message)s")  # to standard error
    logging.getLogger("nrf").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends everything as Ctrl-C does
    sys.exit(report_errors(app))
