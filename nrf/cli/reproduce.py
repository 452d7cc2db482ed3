"""`nrf reproduce`: the paper's experiments."""

import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from nrf.cli.common import Json, print_json, print_table


def reproduce(
    out: Annotated[Path, Option("--out", "-o", help="Folder for runs, tables, figures and page.")] = Path("paper"),
    size: Annotated[str, Option(help="small (48x48, a laptop), paper or paper-code (300x300, GPUs).")] = "small",
    only: Annotated[list[str] | None, Option(help="main, arms, norm or more; can be repeated.")] = None,
    seeds: Annotated[int | None, Option(min=2, max=64, help="Runs per arm; 5 unless given.")] = None,
    jobs: Annotated[int, Option(help="Runs at a time, -1: one per core.")] = 1,
    device: Annotated[str, Option(help="auto, cpu, cuda or mps.")] = "auto",
    json: Json = False,
) -> None:
    """Train every model of the paper with and without its initialisation, and compare.

    Every finished run is kept in OUT/runs.jsonl; interrupted, the same command goes on.
    """
    from nrf.errors import InputError, did_you_mean
    from nrf.experiments.design import SIZES
    from nrf.experiments.study import PARTS, progress_lines
    from nrf.experiments.study import reproduce as run

    if size not in SIZES:
        raise InputError(f"size '{size}' is not known; {did_you_mean(size, SIZES)}")
    for part in only or ():
        if part not in PARTS:
            raise InputError(f"part '{part}' is not known; {did_you_mean(part, PARTS)}")
    parts = [part for part in PARTS if part in (only or PARTS)]
    with progress_lines(out, sys.stderr) as progress:
        study = run(SIZES[size], out, parts, seeds=seeds, jobs=jobs, device=device, progress=progress)
