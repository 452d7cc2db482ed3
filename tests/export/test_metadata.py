"""What a stranger writes into the metadata of a graph, and what all commands make of it."""

from pathlib import Path

import h5py
import nir
import numpy as np
import pytest

import nrf
from nrf.backends.conformance.changes import _tuned
from nrf.backends.conformance.clips import made_clips
from nrf.backends.lowering.calibration import training_config
from nrf.errors import InputError
from nrf.export.nir_files import write_graph
from tests.backends.loihi.graphs import chain, lif

TEXTS = (
    "", "nul", "3", "[]", "[1, 2]", "{}", '{"a": 1}', '{"n1": 3}', '{"n1": "{}"}', '{"n1": {}}', '"\\ud800"',
    "[" * 100_000, '{"dt": 1' + "0" * 400 + "}", '{"dt": NaN}', '{"\x1b[2J": 1}',
    '{"v_min": -1' + "0" * 400 + "}", '{"max_spikes": 1' + "0" * 400 + "}", '{"sensor": 5}',
    '{"readout": 5}', '{"readout": {"gain": "x"}}', '{"readout": {"gain": NaN}}',
    '{"training": {"warm_up": []}}',
    '{"original": {"checksum": [["\x1b[2J"]]}}',
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("metadata") / "good.nir"
    write_graph(path, chain(nir.Linear(np.eye(4, dtype=np.float32)), lif(4), shape=(4,)))
    return path


@pytest.mark.parametrize("key", ["nrf_contract", "nrf_node_contracts", "config", "tuned", "grid", "\x1b[2J"])
def test_metadata_of_a_stranger_are_read_or_refused_in_one_printable_line(good, tmp_path, key):
    taken = 0
    for number, text in enumerate(TEXTS):
        path = tmp_path / f"{number}.nir"
        path.write_bytes(good.read_bytes())
        with h5py.File(path, "r+") as file:
            metadata = file["node"].require_group("metadata")
            if key in metadata:
                del metadata[key]
            metadata[key] = text
        try:
            graph = nrf.read(path, dt=1e-3)
            assert repr(graph).replace("\n", "").isprintable()
            training_config(graph)
            made_clips(graph, 1)
            assert _tuned(str(graph.metadata.get("tuned", "")))
            taken += 1
        except InputError as error:
            assert str(error).isprintable() and len(str(error)) < 600 and path.name in str(error)
    assert taken < len(TEXTS) or key in ("tuned", "grid")


@pytest.mark.parametrize("stated", [{"sensor": 5}, {"readout": "x"}, {"v_min": float("nan")}, {"dt": True}])
def test_a_field_of_a_wrong_type_is_refused_by_its_name(good, stated):
    with pytest.raises(InputError, match=next(iter(stated))):
        nrf.read(good, **stated)


def test_numbers_and_groups_as_metadata_are_no_texts(good, tmp_path):
    for number, value in enumerate((3, np.nan, np.arange(4), None)):
        path = tmp_path / f"{number}.nir"
        path.write_bytes(good.read_bytes())
        with h5py.File(path, "r+") as file:
            metadata = file["node/metadata"]
            del metadata["nrf_contract"]
            metadata.create_group("nrf_contract/a") if value is None else metadata.create_dataset(
                "nrf_contract", data=value
            )
        with pytest.raises(InputError, match=f"{path.name}.*contract"):
            nrf.read(path)


def test_a_calibration_clip_shorter_than_the_latency_chooses_numbers_without_a_warning():
    li = nir.LI(tau=np.full(3, 5e-3), r=np.ones(3), v_leak=np.zeros(3))
    first, last = np.eye(4, dtype=np.float32), np.full((3, 4), 0.3, np.float32)
    graph = chain(nir.Linear(first), lif(4), nir.Linear(last), li, shape=(4,))
    program = nrf.lower(graph, "loihi2", calibrate=[np.ones((1, 4), np.float32)])
    assert nrf.run(program, np.ones((5, 4), np.float32)).steps == 5
