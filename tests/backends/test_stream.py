"""Coordinates from a live source are those of the whole clip, for every chip."""

import time
from pathlib import Path

import nir
import numpy as np
import pytest

import nrf
from nrf.backends.border import chip_names
from nrf.backends.stream import stream
from nrf.errors import InputError
from nrf.events import make, write
from nrf.export import Contract, Graph, canonical
from nrf.model.readout import Readout

CONTRACT = Contract(
    dt=1e-3, reset="subtract", fire="ge", v_min=-1.0, readout=Readout(gain=5.0, stride=1.0, leak=0.1)
)


def graph(contract: Contract) -> Graph:
    shape = (2, 8, 8)
    weight = np.random.default_rng(0).integers(-10, 40, (2, 2, 3, 3)) / 64
    nodes = {
        "input": nir.Input(np.array([2, 8, 8])),
        "conv": nir.Conv2d((8, 8), weight, 1, 1, 1, 1, np.zeros(2)),
        "n": nir.IF(np.full(shape, 1e3), np.ones(shape), np.zeros(shape)),
        "output": nir.Output(np.array(shape)),
    }
    edges = [("input", "conv"), ("conv", "n"), ("n", "output")]
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), contract, "test")


def events(path: Path, steps: int = 90) -> Path:
    rng = np.random.default_rng(1)
    t = np.sort(rng.integers(0, steps * 1000, 600))
    place = rng.integers(0, 8, (2, 600))
    write(path, make(t, *place, rng.integers(0, 2, 600), (8, 8), start=0, stop=steps * 1000))
    return path


@pytest.mark.parametrize("name", chip_names())
@pytest.mark.parametrize("ending", ["npz", "csv"])
def test_readings_are_the_coordinates_of_the_whole_clip(name: str, ending: str, tmp_path: Path) -> None:
    contract = CONTRACT if name == "speck2f" else CONTRACT.with_(reset="zero")
    contract = contract if name == "speck2f" else Contract(**{**contract.__dict__, "v_min": None})
    nrf.lower(graph(contract), name, out=tmp_path / "program")
    source = events(tmp_path / f"events.{ending}")
    found = list(nrf.stream(tmp_path / "program", source, every=0.02))
    whole = nrf.run(tmp_path / "program", source).coordinates
    assert whole is not None
    assert [round(reading.t, 6) for reading in found] == [0.02, 0.04, 0.06, 0.08, 0.09]
    for reading in found:
        assert np.allclose(reading.coordinates, whole[round(reading.t / 1e-3) - 1])


def test_real_time_waits_for_the_recording(tmp_path: Path) -> None:
    from nrf.events import read

    recording = read(events(tmp_path / "e.npz", steps=100))
    start = time.monotonic()
    maps = [
        r.t
        for r in stream(lambda f: [np.zeros((len(f), 1, 2, 2))], recording, 1e-3, Readout(), realtime=True)
    ]
    assert len(maps) == 5
    assert time.monotonic() - start >= 0.1


def test_a_program_without_readout_is_refused_in_one_line(tmp_path: Path) -> None:
    contract = Contract(**{**CONTRACT.__dict__, "readout": None})
    nrf.lower(graph(contract), "speck2f", out=tmp_path / "program")
    with pytest.raises(InputError, match="has no readout"):
        nrf.stream(tmp_path / "program", events(tmp_path / "e.npz"))
