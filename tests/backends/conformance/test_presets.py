"""A freshly trained preset of every chip, on every exact runtime that is here."""

from pathlib import Path

import pytest

from nrf import on_grid
from nrf.backends.border import Chip, backend_of, chip_names, load_chip
from nrf.backends.conformance import conform
from nrf.backends.conformance.clips import made_clips
from nrf.config import from_table, to_table
from nrf.export import read_graph
from nrf.export.trained import from_checkpoint
from nrf.training.config import Config
from nrf.training.loop import train
from nrf.training.presets import load_preset, preset_names


def shrunk(preset: str) -> Config:
    """A preset on a small sensor, trained for seconds."""
    table, tiny = to_table(load_preset(preset)), to_table(load_preset("tiny"))
    table["network"]["input"] = tiny["network"]["input"]
    for block in table["network"]["blocks"]:
        block |= {"features": 6, "kernel": 5}
    table["data"] |= {"clips": tiny["data"]["clips"]}
    table["data"]["shapes"] |= {key: tiny["data"]["shapes"][key] for key in ("resolution", "scales", "steps")}
    table["training"] = tiny["training"]
    return from_table(Config, table, preset)


@pytest.fixture(scope="module", params=[name for name in chip_names() if name in preset_names()])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Chip, Path]:
    """The preset that is named after a chip, trained a little."""
    folder = tmp_path_factory.mktemp(request.param)
    train(shrunk(request.param), folder)
    return load_chip(request.param), folder


@pytest.mark.parametrize("rounded", [False, True])
def test_the_preset_of_a_chip_conforms_on_every_exact_runtime(
    trained: tuple[Chip, Path], rounded: bool
) -> None:
    target, folder = trained
    graph = from_checkpoint(folder)
    graph = on_grid(graph, target) if rounded else graph
    runtimes = backend_of(target).runtimes.values()
    exact = [runtime.name for runtime in runtimes if runtime.exact and runtime.absent() is None]
    clips = made_clips(graph, 2)
    report = conform(graph, target, clips, runtimes=exact)
    assert report.verdict == "pass", "\n".join(map(str, report.failures))
    assert report.on_grid == rounded
    assert max(entry.figures.get("reference_spikes", 0) for entry in report.measured) > 100


def test_a_fully_trained_preset_conforms_on_every_runtime() -> None:
    """Asynchronous ones too, at the tolerances that ship."""
    graph = read_graph(Path(__file__).parents[1] / "speck" / "speck2f.nir")
    report = conform(graph, load_chip("speck2f"), made_clips(graph, 2))
    assert report.verdict == "pass", "\n".join(map(str, report.failures))
    assert {check.runtime for check in report.checks if check.rung == "L3"} >= {"builtin", "asynchronous"}
