"""From the winner to the chip: the best LIF run of the table, trained again, exported, lowered and conformed.

A run is a function of its configuration, so no weights are kept: training it again gives the same network.
"""

import json
from pathlib import Path
from typing import Any

import nrf
from nrf.errors import InputError
from nrf.experiments.design import arms, configuration
from nrf.experiments.runs import Result, prepared_clips
from nrf.experiments.study import Study
from nrf.export import from_checkpoint, write_graph
from nrf.files import atomic_write, make_folder
from nrf.training import checkpoint
from nrf.training.loop import train


def best_lif(study: Study) -> Result:
    """The finished LIF run, without batch normalisation, that has the smallest validation error."""
    chosen = [arm for part in ("main", "arms") for arm in arms(part) if arm.model == "LIF"]
    results = [result for arm in chosen for result in study.results(arm)]
    if not results:
        raise InputError(f"{study.store.path}: no LIF run is finished yet")
    return min(results, key=lambda result: result.validation)


def take_to_chip(study: Study, out: Path, chip: str, clips: int = 16) -> dict[str, Any]:
    """Checkpoint, graph, program and report of the best LIF in OUT/winner; what the chip loses.

    Compared on the chip's built-in simulator, on clips that training never saw.
    """
    result = best_lif(study)
    folder = make_folder(out / "winner" / result.key)
    config = configuration(result.run, study.size)
    train(config, folder, data=prepared_clips(config), resume=(folder / checkpoint.LAST).exists())
    graph = from_checkpoint(folder / checkpoint.LAST)  # as in the table: after the last step
    write_graph(folder / "winner.nir", graph)
    program = nrf.lower(graph, chip, out=folder / f"winner.{chip}")
    report = nrf.conform(graph, chip, clips, runtimes=["builtin"], program=program, out=folder / "report")
    row: dict[str, Any] = {
        "arm": str(result.run.arm), "seed": result.run.seed, "error, px": result.error, "chip": chip,
        "verdict": report.verdict, "failed": "; ".join(map(str, report.failures)) or "nothing",
    }  # fmt: skip
    for measured in (each for each in report.measured if each.node == "coordinates"):
        row |= {f"chip, {name}": round(value, 3) for name, value in measured.figures.items()}
    with atomic_write(out / "winner.json") as part:
        part.write_text(json.dumps(row, indent=1) + "\n")
    return row
