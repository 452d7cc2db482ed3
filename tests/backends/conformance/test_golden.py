"""Golden recordings: read from NumPy's and NIR's own files, held against every dialect."""

import sys
from pathlib import Path

import nir
import numpy as np
import pytest
import torch

import nrf
from nrf.backends import reference
from nrf.backends.conformance.golden import compare, read_golden, recognise
from nrf.cli import main
from nrf.errors import InputError
from nrf.export import read_graph, write_graph
from tests.stranger import INPUTS, NEURONS, leaky, random_frames, write_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_model(tmp_path / "model.nir")
    return tmp_path / "model.nir"


@pytest.fixture
def frames() -> np.ndarray:
    return random_frames()


def test_the_dialect_is_named_and_the_others_depart_somewhere(model: Path, frames: np.ndarray) -> None:
    spikes = leaky(model, frames)
    assert spikes.sum() > 50
    np.savez(model.with_suffix(".npz"), input=frames, lif=spikes)
    best, *others = recognise(model, model.with_suffix(".npz"))
    assert (best.flags, best.differ, best.spikes) == ("--dialect snntorch", 0, spikes.sum())
    assert all(other.differ and other.departs.startswith("node 'lif', step") for other in others)


def test_nirs_own_format_is_read(model: Path, frames: np.ndarray) -> None:
    data = {
        name: nir.NIRNodeData({"spikes": nir.TimeGriddedData(counts[None].astype(bool), 1e-4)})
        for name, counts in (("input", frames), ("lif", leaky(model, frames)))
    }
    nir.write_data(model.with_suffix(".h5"), nir.NIRGraphData(data))
    assert recognise(model, model.with_suffix(".h5"))[0].flags == "--dialect snntorch"


def test_a_graph_with_a_contract_of_its_own_is_tried_under_that(model: Path, frames: np.ndarray) -> None:
    graph = read_graph(model, "snntorch", reset="zero")
    write_graph(model.with_name("own.nir"), graph)
    run = reference.run(graph, frames, dtype=torch.float64)
    np.savez(model.with_suffix(".npz"), input=frames, lif=run.dense("lif"))
    (match,) = recognise(model.with_name("own.nir"), model.with_suffix(".npz"))
    assert (match.flags, match.differ) == ("", 0)
    assert compare(read_graph(model, "snntorch"), read_golden(model.with_suffix(".npz"), graph)).differ


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"lif": np.zeros((4, NEURONS))}, "no array 'input'"),
        ({"input": np.zeros((4, INPUTS))}, "holds the spikes of no node"),
        ({"input": np.zeros((4, INPUTS)), "lof": np.zeros((4, NEURONS))}, "'lof' is no population"),
        ({"input": np.zeros((4, INPUTS)), "lif": np.zeros((5, NEURONS))}, r"'lif' has shape \(5, 8\)"),
        ({"input": np.zeros((4, 3)), "lif": np.zeros((4, NEURONS))}, r"'input' has shape \(4, 3\)"),
        *(
            ({"input": np.zeros((4, INPUTS)), "lif": np.full((4, NEURONS), number)}, "no spike counts")
            for number in (0.5, -1, np.inf, np.nan, 1e30, "one")
        ),
    ],
)
def test_what_does_not_fit_the_graph_is_refused(
    model: Path, arrays: dict[str, np.ndarray], text: str
) -> None:
    np.savez(model.with_suffix(".npz"), **arrays)
    with pytest.raises(InputError, match=text):
        recognise(model, model.with_suffix(".npz"))


def test_the_command_names_the_dialect_and_fails_where_none_fits(
    model: Path,
    frames: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    golden, spikes = model.with_suffix(".npz"), leaky(model, frames)

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["nrf", "check", str(model), *words])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0)

    np.savez(golden, input=frames, lif=spikes)
    assert call("--golden", str(golden)) == 0
    assert "spikes, with --dialect snntorch" in capsys.readouterr().out
    np.savez(golden, input=frames, lif=spikes[::-1])
    assert call("--golden", str(golden)) == 1
    assert "no dialect reproduces all spikes" in capsys.readouterr().out
    assert call("--golden", str(golden), "--reset", "zero") == 2
    assert call("--dialect", "snntorch", "-o", str(model.with_name("fixed.nir"))) == 0
    assert "dialect: dt 0.0001, reset subtract" in capsys.readouterr().out
    fixed = read_graph(model.with_name("fixed.nir"))
    assert set(fixed.origins.values()) == {"file"} and fixed.contract.reset_at == "next"


def test_conform_compares_chip_reference_and_golden_three_ways(model: Path, frames: np.ndarray) -> None:
    golden = model.with_suffix(".npz")
    np.savez(golden, input=frames, lif=leaky(model, frames, "zero"))
    graph = nrf.read(model, dialect="snntorch", reset="zero")
    report = nrf.conform(graph, "loihi2", golden=golden, runtimes=["builtin"])
    held = {check.runtime: check for check in report.checks if check.rung == "golden"}
    assert report.verdict == "pass" and held["reference"].figure == "spikes_differ"
    assert held["reference"].value == 0 and "builtin" in held
    content = report.to_json()["model"]
    assert content["origins"]["reset"] == "flag" and content["origins"]["dt"] == "dialect"
    wrong = nrf.read(model, dialect="snntorch", reset="zero", dt=2e-4)
    report = nrf.conform(wrong, "loihi2", golden=golden, runtimes=["builtin"])
    assert report.verdict == "fail" and report.failures[0].runtime == "reference"
