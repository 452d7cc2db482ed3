"""`nrf lower` as a user would call it."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nir
import numpy as np
import pytest

from nrf.backends.loihi.program import load
from nrf.cli import main
from nrf.export import Graph, write_graph
from tests.backends.loihi.graphs import chain, lif


@dataclass
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def nrf(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """The command, in this process: starting another takes seconds."""

    def call(*words: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["nrf", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.nir"
    write_graph(path, small())
    return path


def small(**contract: str) -> Graph:
    weight = np.random.default_rng(0).normal(1, 2, (5, 4))
    return chain(nir.Affine(weight, np.zeros(5)), lif(5), shape=(4,), **contract)


def test_lower_writes_a_program_and_reports_as_json(
    nrf: Callable[..., Done], model: Path, tmp_path: Path
) -> None:
    np.savez(
        tmp_path / "clip.npz", frames=(np.random.default_rng(1).random((50, 4)) < 0.3).astype(np.float32)
    )
    out = tmp_path / "model.loihi2"
    done = nrf(
        "lower", model, "--target", "loihi2", "-o", out, "--calibrate", tmp_path / "clip.npz", "--json"
    )
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert "1 given clips" in answer["calibration"] and len(answer["placement"]["cores"]) == 1
    assert answer["checksum"] == load(out).checksum


def test_lower_writes_netx_files(nrf: Callable[..., Done], model: Path, tmp_path: Path) -> None:
    import h5py

    done = nrf("lower", model, "--target", "loihi2", "--format", "net", "-o", tmp_path / "model.net")
    assert done.code == 0, done.err
    with h5py.File(tmp_path / "model.net") as file:
        assert file["layer/1/type"][()] == b"dense"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--format", "nets"], "loihi2 has no format 'nets'; did you mean 'net'"),
        (["--approximate"], "loihi2 approximates nothing"),
        (["--reset", "none"], "resets not at all; train or fine-tune"),
        (["--calibrate", "none.npz"], "none.npz"),
        (["--delay", "2"], "delay is 2"),
    ],
)
def test_a_wrong_call_is_one_line_and_leaves_no_file(
    nrf: Callable[..., Done], model: Path, tmp_path: Path, options: list[str], text: str
) -> None:
    done = nrf("lower", model, "--target", "loihi2", "-o", tmp_path / "out", *options)
    assert done.code == 2
    assert text in done.err and "Traceback" not in done.err
    assert not list(tmp_path.iterdir())
