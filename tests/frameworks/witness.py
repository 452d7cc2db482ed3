"""What all witnesses share: seeds, input, files and the command line.

A witness is a script that runs in the environment of a framework, without nrf. It makes random networks of
that framework, has the framework's own exporter write each as `<case>_<seed>.nir`, and records in
`<case>_<seed>.npz` what the framework itself computes: the input `(T, *shape)` and, for every spiking node
under its name in the graph, the spike counts `(T, *shape)`.

    python witness_snntorch.py FOLDER [--count COUNT] [--first SEED] [--case NAME ...]

makes COUNT networks, or one per case, with seeds from SEED on, spread over all cases or those named, and
prints the versions of what made them.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 50
RATES = (0.03, 0.12)  # drawn from here: the least mean rate of every layer, in spikes per neuron and step
SPREAD = 2.5  # the rate of a layer is at most this times the least
TRIALS = 200  # changes of the weights until every layer fires at such a rate

Make = Callable[[str, int, Path], None]  # case, seed, folder


def generator(cases: Iterable[str], case: str, seed: int) -> np.random.Generator:
    """The random numbers of one network: the same network in every process."""
    return np.random.default_rng([seed, list(cases).index(case)])


def draw_input(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Binary frames for half of the networks, frames of small counts for the others."""
    if rng.integers(2):
        return (rng.random((STEPS, *shape)) < rng.uniform(0.1, 0.4)).astype(np.uint8)
    return rng.poisson(rng.uniform(0.1, 0.5), (STEPS, *shape)).astype(np.uint8)


def save(path: Path, frames: np.ndarray, spikes: Mapping[str, np.ndarray]) -> None:
    """The recording beside a graph, in the form that `nrf check --golden` reads."""
    arrays: dict[str, Any] = {"input": frames, **spikes}
    np.savez_compressed(path, **arrays)


def main(make: Make, cases: Iterable[str], packages: Iterable[str]) -> None:
    """The command line of a witness."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, help="one per case unless given")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--case", nargs="*", default=list(cases), help="only these")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for index in range(given.count or len(given.case)):
        make(given.case[index % len(given.case)], given.first + index, given.folder)
    print(json.dumps({name: version(name) for name in packages}))
