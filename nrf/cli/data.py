"""`nrf data`: make a dataset of drifting shapes."""

from pathlib import Path
from typing import Annotated

from typer import Option

from nrf.cli.common import Json, print_json, print_table, progress_bar


def data(
    out: Annotated[Path, Option("--out", "-o", help="Folder for the clips and their description.")],
    dataset: Annotated[str, Option(help="spatial (four sizes) or temporal (velocities).")] = "spatial",
    clips: Annotated[int, Option(help="Number of clips.")] = 2000,
    resolution: Annotated[int, Option(help="Rows and columns; the paper's sets have 300.")] = 300,
    seed: Annotated[int, Option(help="Same seed, same clips.")] = 0,
    noise: Annotated[float | None, Option(help="Probability of a noise event per pixel and step.")] = None,
    generator: Annotated[str, Option(help="As the paper's text has it, or its published code.")] = "text",
    workers: Annotated[int, Option(help="Processes, -1 for all cores; the clips are the same.")] = -1,
    preview: Annotated[bool, Option(help="Also write preview.png and preview.gif.")] = True,
    json: Json = False,
) -> None:
    """Make a dataset of event clips; interrupted, the same command goes on where it stopped."""
    from msgspec.structs import replace

    from nrf.config import to_table
    from nrf.events.dataset import make_dataset, paper_config, read_description
    from nrf.events.preview import preview as write_preview

    config = paper_config(dataset, clips, resolution, seed, generator)
    if noise is not None:
        config = replace(config, shapes=replace(config.shapes, noise=noise))
    made = make_dataset(out, config, workers)
    with progress_bar(f"{dataset} -> {out}") as progress:
        for done, _ in enumerate(made, 1):
            progress(done, clips)
    pictures = write_preview(out) if preview else []
    about = to_table(read_description(out))
    if json:
        print_json(about | {"folder": out, "pictures": pictures})
        return
    titles = ("scale, px", "velocity, px/step", "clips", "shapes, ‰ of pixels", "with noise, ‰")
    keys = ("scale", "velocity", "clips", "signal", "with_noise")
    print_table(titles, [[row[key] for key in keys] for row in about["densities_per_mille"]])
    for path in pictures:
        print(path)
