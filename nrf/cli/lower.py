"""`nrf lower`: a graph becomes the integers of a chip."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from nrf.cli.common import Calibrate, Json, print_json, print_table, say
from nrf.cli.contract import Bin, read, with_contract
from nrf.lazy import load_numba

if TYPE_CHECKING:
    from nrf.backends.border import Lowered


@with_contract
def lower(
    model: Annotated[Path, Argument(help="A NIR graph.")],
    target: Annotated[str, Option(help="loihi2, speck2f, or a path to a .toml file.")],
    out: Annotated[Path, Option("--out", "-o", help="The program file to write.")],
    contract: dict[str, Any],
    calibrate: Calibrate = None,
    approximate: Annotated[bool, Option("--approximate", help="Also what it can only approximate.")] = False,
    weights: Annotated[str, Option(help="Bits of a weight: auto, 8, or 16 as two synapses.")] = "auto",
    format: Annotated[str, Option(help="program, or a vendor's own format such as net.")] = "program",
    bin: Bin = None,
    json: Json = False,
) -> None:
    """Lower a graph to a chip's program; says what was lost, and where everything goes."""
    import nrf

    load_numba()
    chip = nrf.load_chip(target)
    graph = read(model, contract)
    options: dict[str, Any] = {"approximate": approximate, "weights": weights, "format": format}
    program = nrf.lower(graph, chip, calibrate=calibrate or [], out=out, bin=bin, **options)
    if json:
        answer = {"program": out, "target": chip.name, "checksum": program.checksum}
        print_json(answer | asdict(program.lowered))
        return
    _print(program.lowered)
    say(f"{out}: {chip.title}, checksum {program.checksum}")


def _print(lowered: "Lowered") -> None:
    """One line per population, then the figures of the whole."""
    notes = list(dict.fromkeys(key for loss in lowered.losses for key in loss.notes))
    titles = ("population", "rounding", "F1", "F1 together", "membrane, V rms", *notes)
    rows = []
    for loss in lowered.losses:
        figures = (loss.population, loss.rounding, loss.f1, loss.f1_together, loss.membrane_rms)
        rows.append((*figures, *(loss.notes.get(key) for key in notes)))
    print_table(titles, rows)
    placement = lowered.placement
    used = len({use.core for use in placement.cores})
    print(f"cores: {used} of {placement.available * placement.chips}")
    for key, value in (placement.totals | lowered.figures).items():
        print(f"{key.replace('_', ' ')}: {value:.6g}")
    for rewrite in lowered.rewrites:
        say(f"rewritten: {rewrite}")
    for warning in lowered.warnings:
        say(f"warning: {warning}")
    if lowered.calibration:
        say(f"calibrated on: {lowered.calibration}")
