"""`nrf export`, `nrf check` and `nrf run` as a user calls them."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import nir
import numpy as np
import pytest
import torch

from nrf.backends.border.recording import Recording
from nrf.backends.conformance.clips import truth_error
from nrf.cli import app
from nrf.cli.common import report_errors
from nrf.events.dataset import DatasetConfig
from nrf.export import Contract, canonical, read_graph, write_graph
from nrf.model.network import build
from nrf.training import checkpoint
from nrf.training.presets import load_preset

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def nrf(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call the command line in this process: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["nrf", *map(str, arguments)])
        code = report_errors(app)
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small spiking network that either chip takes, and its input."""
    rng = np.random.default_rng(0)
    lif = [np.full((4, 8, 8), v) for v in (5e-3, 1.0, 0.0, 0.2)]
    nodes = {
        "input": nir.Input(np.array([2, 8, 8])),
        "conv": nir.Conv2d(None, rng.normal(0, 0.3, (4, 2, 3, 3)), 1, 1, 1, 1, np.zeros(4)),
        "lif": nir.LIF(*lif),
        "output": nir.Output(None),
    }
    edges = [("input", "conv"), ("conv", "lif"), ("lif", "output")]
    graph = canonical(nir.NIRGraph(nodes, edges, type_check=False), Contract(dt=1e-3))
    write_graph(tmp_path / "model.nir", graph)
    np.savez(tmp_path / "clip.npz", frames=(rng.random((30, 2, 8, 8)) < 0.2).astype(np.float32))
    return tmp_path / "model.nir"


def test_export_writes_a_network_that_check_and_run_take(nrf: Call, tmp_path: Path) -> None:
    config = load_preset("tiny")
    checkpoint.write(
        tmp_path / "tiny.safetensors", build(config.network, config.seed), config, {"error": 1.5}
    )
    code, out, _ = nrf("export", tmp_path / "tiny.safetensors", "-o", tmp_path / "tiny.nir", "--json")
    answer = json.loads(out)
    assert code == 0 and answer["contract"]["dt"] == 1e-3
    assert answer["checksum"] == read_graph(tmp_path / "tiny.nir").checksum
    code, out, _ = nrf("check", tmp_path / "tiny.nir", "-o", tmp_path / "tiny.svg")
    assert code == 0 and "lif1_0" in out and (tmp_path / "tiny.svg").read_text().startswith("<svg")
    np.savez(tmp_path / "clip.npz", frames=np.ones((12, 2, 32, 32)))
    code, out, _ = nrf("run", tmp_path / "tiny.nir", "-i", tmp_path / "clip.npz", "-o", tmp_path / "r.npz")
    assert code == 0 and "12 steps on float reference (simulation)" in out
    assert Recording.load(tmp_path / "r.npz").coordinates is not None


def test_export_on_a_grid_states_the_error_before_and_after(nrf: Call, tmp_path: Path) -> None:
    config = load_preset("tiny")
    network = build(config.network, config.seed)
    checkpoint.write(tmp_path / "tiny.safetensors", network, config, {"error": 1.5})
    code, out, _ = nrf(
        "export", tmp_path / "tiny.safetensors", "-o", tmp_path / "tiny.nir", "--grid", "loihi2", "--json"
    )
    answer = json.loads(out)
    assert code == 0
    assert answer["px_after_rounding"] == truth_error(read_graph(tmp_path / "tiny.nir"))
    clips = DatasetConfig(config.name, config.data.clips, config.seed, config.data.shapes)
    distances = []
    for number in range(8):
        clip = clips.clip(config.data.clips + number)
        with torch.no_grad():
            maps = network(torch.from_numpy(clip.frames())[:, None]).membrane
            places = network.coordinates(maps)[0][:, 0].numpy()
        distances.append(np.linalg.norm(places - clip.coordinates, axis=-1)[config.training.warm_up :])
    assert answer["px_before_rounding"] == pytest.approx(np.mean(distances), abs=1e-3)


def test_run_takes_events_as_well_as_frames(nrf: Call, model: Path, tmp_path: Path) -> None:
    frames = np.load(tmp_path / "clip.npz")["frames"].astype(int)
    t, p, y, x = np.nonzero(frames)
    np.savez(tmp_path / "events.npz", t=1000 * t, x=x, y=y, p=p, sensor=(8, 8), stop=30000)
    for name in ("clip", "events"):
        code, out, err = nrf(
            "run", model, "-i", tmp_path / f"{name}.npz", "-o", tmp_path / f"{name}.rec", "--json"
        )
        assert code == 0, err
        assert json.loads(out)["nodes"]["lif"]["spikes"] > 0
    first, second = (Recording.load(tmp_path / f"{name}.rec") for name in ("clip", "events"))
    np.testing.assert_array_equal(first.dense("lif"), second.dense("lif"))


def test_run_takes_a_program_to_its_chip(nrf: Call, model: Path, tmp_path: Path) -> None:
    assert nrf("lower", model, "--target", "loihi2", "-o", tmp_path / "model.program")[0] == 0
    arguments = ("run", tmp_path / "model.program", "-i", tmp_path / "clip.npz", "-o", tmp_path / "chip.npz")
    code, out, err = nrf(*arguments)
    assert code == 0, err
    assert "30 steps on loihi2 builtin (simulation)" in out
    assert Recording.load(tmp_path / "chip.npz").provenance.target == "loihi2"
    code, _, err = nrf(*arguments, "--runtime", "abacus")
    assert code == 2 and "loihi2: unknown runtime 'abacus'; known are builtin" in err


def test_check_answers_whether_a_chip_takes_a_graph(nrf: Call, model: Path) -> None:
    code, out, _ = nrf("check", model, "--target", "loihi2")
    assert code == 0 and "fits Intel Loihi 2" in out
    code, out, _ = nrf("check", model, "--target", "speck2f", "--json")
    answer = json.loads(out)
    assert code == (0 if answer["fits"] else 1)
    assert code == 1 and any(finding["node"] == "lif" for finding in answer["findings"])
    code, _, err = nrf("check", model, "--target", "abacus")
    assert code == 2 and "unknown target 'abacus'" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--input", "none.npz"), "none.npz: no such file"),
        (("--device", "tpu"), "device is 'tpu', expected cpu, cuda, cuda:N or mps"),
        (("--precision", "int8"), "precision is the str 'int8', expected 'float32' or 'float64'"),
        (("--dt", "0"), "contract: dt is 0.0, expected seconds above 0"),
        (("--out", "nowhere/r.npz"), "folder nowhere does not exist"),
    ],
)
def test_one_wrong_option_is_one_clear_line(
    nrf: Call, model: Path, tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    options = {"--input": tmp_path / "clip.npz", "--out": tmp_path / "r.npz"} | dict([change])
    code, _, err = nrf("run", model, *(part for pair in options.items() for part in pair))
    assert code == 2 and message in err and len(err.splitlines()) == 1


def test_frames_of_another_size_and_events_without_dt(nrf: Call, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "small.npz", frames=np.zeros((3, 2, 4, 4)))
    code, _, err = nrf("run", model, "-i", tmp_path / "small.npz", "-o", tmp_path / "r.npz")
    assert code == 2 and "small.npz: frames have shape (3, 2, 4, 4), expected (T, 2, 8, 8)" in err
    ones = np.ones((2, 8, 8))
    nodes = {"input": nir.Input(np.array([2, 8, 8])), "if": nir.IF(ones, ones), "output": nir.Output(None)}
    raw = nir.NIRGraph(nodes, [("input", "if"), ("if", "output")], type_check=False)
    write_graph(tmp_path / "if.nir", canonical(raw, Contract()))
    np.savez(tmp_path / "events.npz", t=[0, 1], x=[1, 1], y=[1, 1], p=[0, 0], sensor=(8, 8))
    code, _, err = nrf("run", tmp_path / "if.nir", "-i", tmp_path / "events.npz", "-o", tmp_path / "r.npz")
    assert code == 2 and "these are events, and no dt is known to bin them by; give --bin SECONDS" in err
    code, _, err = nrf("run", tmp_path / "if.nir", "-i", tmp_path / "clip.npz", "-o", tmp_path / "r.npz")
    assert code == 0
