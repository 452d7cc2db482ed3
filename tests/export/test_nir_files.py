"""NIR files: what was written comes back, and a damaged file never ends in a traceback."""

import io
import tempfile
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import nir
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from nrf.backends import reference
from nrf.errors import InputError
from nrf.export import Contract, Graph, canonical, read_graph, write_graph
from nrf.model.readout import Readout
from tests.export.graphs import Case, cases

FULL = Contract(1e-3, "subtract", "ge", 1, -0.5, "euler", "membrane", Readout(2.0, 4.0, 1.5, 0.2))


def graph() -> Graph:
    lif = [np.full((2, 4, 4), v) for v in (1e-2, 1.0, 0.0, 1.0)]
    three = np.ones((3, 2, 2))
    size = np.array(three.shape)
    inner = nir.NIRGraph(
        {"in": nir.Input(size), "n": nir.CubaLIF(*[three] * 5), "out": nir.Output(size)},
        [("in", "n"), ("n", "out")],
        type_check=False,
    )
    nodes = {
        "input": nir.Input(np.array([1, 4, 4])),
        "conv": nir.Conv2d((4, 4), np.ones((2, 1, 3, 3)), 1, 1, 1, 1, np.zeros(2)),
        "lif": nir.LIF(*lif),
        "pool": nir.AvgPool2d(*np.array([[2, 2], [2, 2], [0, 0]])),
        "dense": nir.Affine(np.ones((2, 2, 2, 2)), np.zeros((2, 2, 2))),
        "flat": nir.Flatten({"input": np.array([2, 2, 2])}, 0, 0),
        "mixed": nir.Conv2d((2, 2), np.ones((3, 2, 1, 1)), 1, 0, 1, 1, np.zeros(3)),
        "wait": nir.Delay(2e-3 * three),
        "block": inner,
        "output": nir.Output(size),
    }
    names = list(nodes)
    raw = nir.NIRGraph(nodes, list(pairwise(names)), type_check=False)
    raw.metadata = {"author": "somebody", "numbers": np.arange(3), "nested": {"deep": "yes"}, "year": 2024}
    return canonical(raw, FULL, "here")


def test_contract_and_metadata_come_back(tmp_path: Path) -> None:
    before = graph()
    write_graph(tmp_path / "a.nir", before)
    after = read_graph(tmp_path / "a.nir")
    assert after.contract == before.contract == FULL
    assert after.checksum == before.checksum and after.assumed == ()
    assert after.metadata["author"] == "somebody" and after.metadata["nested"] == {"deep": "yes"}
    np.testing.assert_array_equal(after.metadata["numbers"], [0, 1, 2])
    assert read_graph(tmp_path / "a.nir", delay=0, reset="zero").contract == replace(
        FULL, delay=0, reset="zero"
    )


@settings(max_examples=20, deadline=None)
@given(cases())
def test_a_graph_in_memory_is_read_as_its_file_is(case: Case) -> None:
    """What an exporter gave, without a file between: the same graph, the same refusal, nothing changed."""

    def answer(source: Path | nir.NIRGraph) -> tuple[object, ...]:
        try:
            read = read_graph(source, dialect="norse", v_reset=-0.25)
            return read.checksum, sorted(read.repairs), read.origins  # HDF5 sorts nodes by name
        except InputError as error:
            return (str(error).replace(str(source), "graph"),)

    untouched = deepcopy(case.graph.to_dict())
    with tempfile.TemporaryDirectory() as folder:
        try:
            nir.write(file := Path(folder) / "a.nir", case.graph)
        except TypeError:  # of a parameter without axes, which `nir` cannot write
            reject()
        assert answer(file) == answer(case.graph)
    np.testing.assert_equal(case.graph.to_dict(), untouched)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), channels=st.integers(2, 5), size=st.integers(1, 6))
def test_one_parameter_per_channel_is_read_as_written_out(seed: int, channels: int, size: int) -> None:
    """(channels,), which nir writes as it stands, means (channels, 1, 1) where it fits no other axis."""
    if channels == size:
        return
    rng, shape = np.random.default_rng(seed), (channels, size + 1, size)
    weight, values = rng.normal(0.5, 1, (channels, 2, 2, 1)), rng.uniform(0.5, 2, (3, channels))

    def spikes(*axes: int) -> Any:
        r, threshold, scale = (value.reshape(channels, *axes) for value in values)
        nodes = {
            "input": nir.Input(np.array([2, size + 2, size])),
            "conv": nir.Conv2d((size + 2, size), weight, 1, 0, 1, 1, np.zeros(channels)),
            "if": nir.IF(r, threshold, np.zeros_like(r)),
            "scale": nir.Scale(scale),
            "last": nir.Threshold(np.full(shape, 0.9)),
            "output": nir.Output(np.array(shape)),
        }
        with tempfile.TemporaryDirectory() as folder:
            nir.write(Path(folder) / "graph.nir", nir.NIRGraph(nodes, [*pairwise(nodes)], type_check=False))
            read = read_graph(Path(folder) / "graph.nir", dt=1.0)
        assert bool(read.repairs) == (not axes)
        frames = (np.random.default_rng(seed).random((12, 2, size + 2, size)) < 0.4).astype(np.float32)
        return [reference.run(read, frames).dense(name) for name in ("if", "last")]

    for flat, whole in zip(spikes(), spikes(1, 1), strict=True):
        assert np.array_equal(flat, whole)


def test_the_checksum_sees_every_parameter_and_the_contract() -> None:
    before = graph()
    assert replace(before, contract=replace(FULL, dt=2e-3)).checksum != before.checksum
    node = before.nodes["lif"]
    node.tau[1, 2, 3] *= 2
    assert before.checksum != graph().checksum


@pytest.mark.parametrize("name", ["a/b", "."])
def test_names_that_hdf5_cannot_hold_are_refused(name: str, tmp_path: Path) -> None:
    nodes = {"input": nir.Input(np.array([3])), name: nir.Scale(np.ones(3)), "output": nir.Output(None)}
    raw = nir.NIRGraph(nodes, [("input", name), (name, "output")], type_check=False)
    with pytest.raises(InputError, match="HDF5 cannot hold this name"):
        write_graph(tmp_path / "a.nir", canonical(raw, Contract()))
    assert not (tmp_path / "a.nir").exists()


def test_a_damaged_contract_names_the_file(tmp_path: Path) -> None:
    raw = nir.NIRGraph(
        {"input": nir.Input(np.array([3])), "output": nir.Output(np.array([3]))},
        [("input", "output")],
        metadata={"nrf_contract": '{"dt": 1e-3, "colour": "red"}'},
    )
    nir.write(tmp_path / "a.nir", raw)
    with pytest.raises(InputError, match=r"a\.nir: contract in the graph's metadata is unreadable.*colour"):
        read_graph(tmp_path / "a.nir")


@pytest.mark.parametrize("volts", ["a", float("nan"), [0.5]])
def test_a_reset_voltage_that_is_none_is_refused(volts: Any) -> None:
    raw = nir.NIRGraph(
        {"input": nir.Input(np.array([3])), "output": nir.Output(np.array([3]))}, [("input", "output")]
    )
    with pytest.raises(InputError, match=r"v_reset is .*expected volts"):
        read_graph(raw, v_reset=volts)


def places(file: h5py.File) -> list[str]:
    found: list[str] = []
    file.visit(found.append)
    return [place for place in found if place.startswith("node/")]


VALUES: dict[str, Any] = {
    "text": "nonsense",
    "nan": np.full(3, np.nan),
    "empty": np.zeros((0, 2)),
    "minus": -1,
    "huge": np.full((7, 1, 2), 9e9),
    "zero": np.zeros(2, int),
}


@settings(max_examples=150)
@given(data=st.data())
def test_a_damaged_file_is_refused_in_words(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "a.nir"
    path.write_bytes(sound())
    with h5py.File(path, "r+") as file:
        place = data.draw(st.sampled_from(places(file)))
        change = data.draw(st.sampled_from(["gone", *VALUES]))
        del file[place]
        if change != "gone":
            file[place] = VALUES[change]
    try:
        read_graph(path)
    except InputError as error:
        assert str(path) in str(error)


def sound(kept: list[bytes] = []) -> bytes:  # noqa: B006
    """The bytes of a sound file, written once."""
    if not kept:
        buffer = io.BytesIO()
        from nrf.export.nir_files import to_nir

        nir.write(buffer, to_nir(graph()))
        kept.append(buffer.getvalue())
    return kept[0]
