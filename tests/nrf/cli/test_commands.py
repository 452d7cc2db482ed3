"""What holds for every command: nothing asked for is ignored, and nothing in the way of a file is lost."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nir
import numpy as np
import pytest

from nrf.backends.border.recording import Recording
from nrf.cli import app
from nrf.cli.common import report_errors
from nrf.errors import InputError
from nrf.export import write_graph
from nrf.files import atomic_write, make_folder
from tests.backends.loihi.graphs import chain, lif

Call = Callable[..., tuple[int, str]]


@pytest.fixture
def nrf(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in this process: exit code, and what it says on standard error."""

    def call(*words: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["nrf", *map(str, words)])
        return report_errors(app), capsys.readouterr().err

    return call


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph, a chip of one's own, a clip, and events for a graph without dt."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    write_graph(
        folder / "model.nir", chain(nir.Affine(rng.normal(1, 2, (5, 4)), np.zeros(5)), lif(5), shape=(4,))
    )
    kernel = nir.Conv2d(None, rng.normal(0.5, 1, (2, 2, 3, 3)), 1, 1, 1, 1, np.zeros(2))
    ones = np.ones((2, 8, 8))
    integrating = chain(kernel, nir.IF(ones, ones, 0 * ones), shape=(2, 8, 8), dt=None)
    write_graph(folder / "steps.nir", integrating)
    np.savez(folder / "clip.npz", frames=(rng.random((50, 4)) < 0.3).astype(np.float32))
    events = {"t": np.sort(rng.integers(0, 300_000, 500)), "p": rng.integers(0, 2, 500)}
    events |= {"x": rng.integers(0, 8, 500), "y": rng.integers(0, 8, 500)}
    np.savez(folder / "events.npz", **events, sensor=np.array([8, 8]))
    ours = Path(__file__).parents[3] / "hw_configs" / "loihi2.toml"
    (folder / "mine.toml").write_text(ours.read_text().replace('name = "loihi2"', 'name = "mine"'))
    return folder


def test_a_failure_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Integrators that forget nothing, with weights and biases of which 8 bits keep little."""
    rng, ones = np.random.default_rng(0), np.ones(16)
    weights = (nir.Affine(rng.normal(0.1, 0.2, (16, 16)), rng.normal(0, 0.01, 16)) for _ in range(2))
    layers = (node for weight in weights for node in (weight, nir.IF(ones, ones, 0 * ones)))
    write_graph(tmp_path / "deep.nir", chain(*layers, shape=(16,), membrane="unit"))
    np.savez(tmp_path / "clip.npz", frames=(rng.random((200, 16)) < 0.2).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    words = "conform deep.nir --target speck2f --runtime builtin -i clip.npz -o report"
    monkeypatch.setattr(sys, "argv", ["nrf", *words.split()])
    assert report_errors(app) == 1
    assert "what to do: single nodes lose spikes to the chip's numbers" in capsys.readouterr().out


def test_an_option_that_would_be_ignored_is_refused(nrf: Call, files: Path, tmp_path: Path) -> None:
    clip, out = files / "clip.npz", tmp_path / "out.npz"
    program = tmp_path / "model.loihi2"
    assert nrf("lower", files / "model.nir", "--target", "loihi2", "-o", program)[0] == 0
    on_graph = ("run", files / "model.nir", "-i", clip, "-o", out)
    on_program = ("run", program, "-i", clip, "-o", out)
    for words in (
        (*on_graph, "--runtime", "lava"),
        (*on_program, "--dt", "5e-4"),
        (*on_program, "--reset", "subtract"),
        (*on_program, "--device", "cuda"),
        ("run", program, "-i", clip, "--runtime", "lava"),
        ("conform", "--cases", "--golden", clip),
        ("conform", "--cases", files / "model.nir"),
        ("conform", files / "model.nir", "--target", "loihi2", "--scoreboard", tmp_path / "cases.md"),
        ("check", files / "model.nir", "--golden", clip, "--target", "loihi2"),
        ("check", files / "model.nir", "--golden", clip, "--reset", "zero"),
        ("train", "-o", tmp_path / "run", "--config", files / "mine.toml", "--preset", "tiny"),
    ):
        code, said = nrf(*words)
        assert code == 2 and "has no effect on" in said and said.count("\n") == 1, words
    assert nrf("check", files / "model.nir", "-i", clip)[0] == 2
    code, said = nrf("conform", "--cases", "--case", "conv2d", "--runtime", "nope")
    assert code == 2 and "unknown runtime 'nope'" in said
    assert not out.exists()


def test_no_processes_are_no_answer(nrf: Call, files: Path, tmp_path: Path) -> None:
    clip = files / "clip.npz"
    for words in (
        ("run", files / "model.nir", "-i", clip, "-i", clip, "--jobs", "0"),
        ("reproduce", "-o", tmp_path / "out", "--size", "mini", "--jobs", "0"),
        ("conform", "--cases", "--jobs", "0"),
    ):
        code, said = nrf(*words)
        assert code == 2 and "jobs is 0; give a number of processes, or -1 for all cores" in said, words


def test_a_program_for_a_chip_of_ones_own_runs_with_its_file(nrf: Call, files: Path, tmp_path: Path) -> None:
    program, out = tmp_path / "program", tmp_path / "out.npz"
    assert nrf("lower", files / "model.nir", "--target", files / "mine.toml", "-o", program)[0] == 0
    run = ("run", program, "-i", files / "clip.npz", "-o", out)
    code, said = nrf(*run)
    assert code == 2 and "is for 'mine', which is not installed; give its TOML file" in said
    assert nrf(*run, "--target", "loihi2")[0] == 2
    assert nrf(*run, "--target", files / "mine.toml")[0] == 0
    assert Recording.load(out).provenance.target == "mine"


def test_events_for_a_graph_without_dt_need_a_width_everywhere(
    nrf: Call, files: Path, tmp_path: Path
) -> None:
    model, events = files / "steps.nir", files / "events.npz"
    run = ("run", model, "-i", events, "-o", tmp_path / "out.npz")
    lower = ("lower", model, "--target", "loihi2", "--calibrate", events, "-o", tmp_path / "program")
    conform = ("conform", model, "--target", "loihi2", "-i", events, "-o", tmp_path / "report")
    for words in (run, lower, (*conform, "--runtime", "builtin")):
        code, said = nrf(*words)
        assert code == 2 and "events.npz: these are events" in said and "give --bin SECONDS" in said
    assert nrf(*run, "--bin", "0.01")[0] == 0
    assert Recording.load(tmp_path / "out.npz").steps == 30
    assert nrf(*lower, "--bin", "0.01")[0] == 0
    assert nrf(*conform, "--runtime", "builtin", "--bin", "0.01")[0] in (0, 1)  # a verdict, either way


def test_output_goes_through_a_link_and_never_replaces_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as part:
        part.write_text("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    for name, what in (("pipe", "a device"), (".", "a folder")):
        with (
            pytest.raises(InputError, match=f"is {what}; give the name of a file"),
            atomic_write(tmp_path / name),
        ):
            pass
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"n{300}: cannot be written"), atomic_write(tmp_path / ("n" * 300)):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file: cannot be made a folder"):
        make_folder(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_reader_that_has_seen_enough_is_no_error(files: Path) -> None:
    """`nrf check model.nir --json | head -1`, with a reader that leaves at once."""
    script = Path(sys.executable).with_name("nrf")
    command = f"'{script}' check '{files / 'model.nir'}' --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_environment_that_cannot_be_built_has_a_line_of_its_own(nrf: Call, monkeypatch) -> None:
    from nrf.backends.vendors import environment

    def build(name: str, say: Callable[[str], None]) -> Path:
        raise InputError(f"{name}: no Python 3.10")

    monkeypatch.setattr(environment, "build", build)
    code, said = nrf("setup", "all")
    assert code == 2 and [line.split(":")[-1] for line in said.splitlines()] == [" no Python 3.10"] * 5
