"""The command line: each command is a few lines around one function of the library.

One file per stage. Heavy imports stay inside the commands, so that `nrf --help` is quick.
Exit codes: 0 good, 1 the answer is no, 2 the input or the call is wrong.
"""

import sys

import typer

from nrf.cli.common import report_errors

app = typer.Typer(
    name="nrf",
    help="Train spiking vision models, export them to NIR, lower them to Loihi 2 and Speck 2f, "
    "and prove that they still do the same thing there.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for module in ():  # every command registers itself here
    module.register(app)


def main() -> None:
    """Entry point of the `nrf` script."""
    sys.exit(report_errors(app))
