"""`nrf train`: train a network."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from nrf.cli.common import Json, print_json


def train(
    out: Annotated[Path, Option("--out", "-o", help="Folder for checkpoints, configuration and log.")],
    preset: Annotated[
        str | None, Option(help="demo (unless said), loihi2, speck2f, tiny, paper, paper-code, paper-small.")
    ] = None,
    config: Annotated[Path | None, Option(help="A configuration of your own (TOML) instead.")] = None,
    target: Annotated[
        str | None, Option(help="Chip, or its .toml, whose integers a preset such as speck2f is trained on.")
    ] = None,
    data: Annotated[Path | None, Option(help="A dataset of `nrf data`; else clips are made now.")] = None,
    seed: Annotated[int | None, Option(help="Same seed, same result.")] = None,
    steps: Annotated[int | None, Option(help="Batches of clips through time.")] = None,
    minutes: Annotated[float | None, Option(help="Stop after so long at the latest.")] = None,
    device: Annotated[str, Option(help="auto, cpu, cuda or mps.")] = "auto",
    devices: Annotated[int, Option(help="Processes on this machine, one device each.")] = 1,
    nodes: Annotated[int, Option(help="Machines.")] = 1,
    resume: Annotated[bool, Option("--resume", help="Go on from the folder's last checkpoint.")] = False,
    json: Json = False,
) -> None:
    """Train a network by backpropagation through time."""
    from msgspec.structs import replace

    from nrf.api.calls import refuse_unused
    from nrf.api.training import for_chip
    from nrf.config import from_table
    from nrf.training.config import read_config
    from nrf.training.log import outcome, progress
    from nrf.training.loop import Machine
    from nrf.training.loop import train as run
    from nrf.training.presets import load_preset

    if config:
        refuse_unused("a configuration of your own", preset=preset)
    chosen = read_config(config) if config else load_preset(preset or "demo")
    if target is not None:
        chosen = for_chip(chosen, target)
    if seed is not None:
        chosen = replace(chosen, seed=seed)
    if steps is not None:
        chosen = chosen.with_training(steps=steps)
    options = {"device": device, "devices": devices, "nodes": nodes, "minutes": minutes}
    machine = from_table(Machine, options, "nrf train")
    with progress(chosen.training.all_steps, sys.stderr) as report:
        summary = run(chosen, out, machine=machine, resume=resume, data=data, report=report)
    if not summary:
        return  # a helper process
    if json:
        print_json(summary)
        return
    print(outcome(summary, chosen.training.all_steps))
    print(out / "best.safetensors")
