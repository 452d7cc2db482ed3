"""`nrf reproduce`: the paper's experiments."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from nrf.cli.common import Json, print_json, print_table, progress_bar


def reproduce(
    out: Annotated[Path, Option("--out", "-o", help="Folder for runs, tables, figures, page.")] = Path(
        "paper"
    ),
    size: Annotated[
        str, Option(help="mini (seconds), small (a laptop), paper or paper-code (GPUs).")
    ] = "small",
    only: Annotated[list[str] | None, Option(help="main, arms, norm or more; can be repeated.")] = None,
    seeds: Annotated[int | None, Option(min=2, max=64, help="Runs per arm; 5 unless given.")] = None,
    jobs: Annotated[int, Option(help="Runs at a time, -1: one per core.")] = 1,
    device: Annotated[str, Option(help="auto, cpu, cuda or mps.")] = "auto",
    cluster: Annotated[str | None, Option(help="Address of a Dask scheduler that gets the runs.")] = None,
    chip: Annotated[str | None, Option(help="Also take the best LIF model to this chip.")] = None,
    show: Annotated[bool, Option("--show", help="Train nothing; tables and page of what is there.")] = False,
    try_out: Annotated[bool, Option("--try", help="One short step of every model; its memory.")] = False,
    json: Json = False,
) -> None:
    """Train every model of the paper with and without its initialisation, and compare.

    Every finished run is kept in OUT/runs.jsonl; interrupted, the same command goes on.
    """
    from nrf.errors import InputError, did_you_mean
    from nrf.experiments.design import SIZES
    from nrf.experiments.figures import write_figures
    from nrf.experiments.page import sections, summary, write_page
    from nrf.experiments.runs import on_cluster
    from nrf.experiments.study import PARTS, logged
    from nrf.experiments.study import reproduce as run
    from nrf.experiments.trial import try_every_model

    if size not in SIZES:
        raise InputError(f"size '{size}' is not known; {did_you_mean(size, SIZES)}")
    for part in only or ():
        if part not in PARTS:
            raise InputError(f"part '{part}' is not known; {did_you_mean(part, PARTS)}")
    if try_out:
        rows = list(try_every_model(SIZES[size], device))
        print_json(rows) if json else print_table(rows[0], [row.values() for row in rows])
        return
    parts = [] if show else [part for part in PARTS if part in (only or PARTS)]
    with progress_bar("runs") as bar, on_cluster(cluster):
        progress = logged(out, bar)
        study = run(SIZES[size], out, parts, seeds=seeds, jobs=jobs, device=device, progress=progress)
    try:
        write_figures(study, out / "figures")
    except InputError as error:  # tables and page are there without matplotlib
        print(f"note: {error}", file=sys.stderr)
    if chip:
        from nrf.experiments.winner import take_to_chip

        take_to_chip(study, out, chip)
    page, answer = write_page(study, out), summary(study)
    if json:
        print_json(answer)
        return
    for title, titles, cells in sections(answer):
        print(title)
        print_table(titles, cells)
    print(page)
