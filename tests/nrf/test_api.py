"""What a notebook uses: a few lines, quick to import, clear when a word is wrong."""

import subprocess
import sys
from pathlib import Path

import nir
import numpy as np
import pytest

import nrf
from benchmarks.cases import recipes
from nrf.backends.border import Recording, RunOptions
from nrf.backends.conformance import Clip
from nrf.errors import InputError
from nrf.export import Contract, Graph, canonical, write_graph
from nrf.export.nir_files import to_nir

ZEROS = np.zeros((3, 4))
HEAVY = ("torch", "numba", "numpy", "nir", "scipy", "joblib")


def small(name: str = "small", weight: float = 0.5) -> Graph:
    nodes = {
        "input": nir.Input({"input": np.array([4])}),
        "linear": nir.Linear(np.eye(3, 4) * weight),
        "neurons": recipes.if_(3),
        "output": nir.Output(None),
    }
    edges = list(zip(nodes, list(nodes)[1:], strict=False))
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), Contract(dt=1e-3), name)


def deep() -> Graph:
    """Another graph with the same input."""
    nodes, edges = dict(small().nodes), list(small().edges[:-1])
    nodes |= {"more": nir.Linear(np.eye(3)), "later": recipes.if_(3)}
    edges += [("neurons", "more"), ("more", "later"), ("later", "output")]
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), Contract(dt=1e-3), "deep")


@pytest.fixture
def frames() -> np.ndarray:
    return (np.random.default_rng(0).random((30, 4)) < 0.5).astype(np.float32)


def test_the_import_is_quick_and_everything_is_listed() -> None:
    code = f"import nrf, sys; print([name for name in {HEAVY} if name in sys.modules], *nrf.__all__)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("[] check conform diff load load_chip lower")
    assert set(nrf.__all__) <= set(dir(nrf))
    assert all(getattr(nrf, name).__doc__ for name in nrf.__all__)


def test_a_single_path_is_as_good_as_a_list_of_one(tmp_path: Path, frames: np.ndarray) -> None:
    np.savez(tmp_path / "clip.npz", frames=frames)
    one, several = (
        nrf.conform(small(), "loihi2", clips, runtimes=["builtin"]).measured
        for clips in (tmp_path / "clip.npz", [tmp_path / "clip.npz"])
    )
    assert one == several
    results = [[ran.spikes for ran in nrf.run_many(small(), clips)] for clips in (tmp_path, [tmp_path])]
    assert results[0] == results[1] and len(results[0]) == 1


def test_from_a_file_to_a_report(tmp_path: Path, frames: np.ndarray) -> None:
    write_graph(tmp_path / "model.nir", small())
    graph = nrf.read(tmp_path / "model.nir")
    assert graph == nrf.read(to_nir(small()))  # as an exporter gives it, without a file
    findings = nrf.check(graph, "loihi2")
    assert not [finding for finding in findings if finding.severity == "error"]
    assert findings == nrf.check(tmp_path / "model.nir", "loihi2")
    program = nrf.lower(graph, "loihi2", calibrate=[frames], out=tmp_path / "model.loihi2")
    recording = nrf.run(program, frames)
    assert not recording.membranes
    assert nrf.run(program, frames, options=RunOptions(membranes=True)).membranes
    assert recording == nrf.run(tmp_path / "model.loihi2", frames)
    recording.save(tmp_path / "recording.npz")
    report = nrf.conform(
        graph, "loihi2", [frames], runtimes=["builtin"], program=program, out=tmp_path / "out"
    )
    assert report.verdict == "pass" and (tmp_path / "out" / "report.html").is_file()
    assert nrf.load(tmp_path / "recording.npz") == recording
    assert nrf.load(tmp_path / "model.nir") == graph
    loaded = nrf.load(tmp_path / "model.loihi2")
    assert not isinstance(loaded, Recording | Graph) and loaded.checksum == program.checksum
    with pytest.raises(InputError, match="not a graph, program or recording"):
        (tmp_path / "text").write_text("hello")
        nrf.load(tmp_path / "text")


def test_a_graph_runs_in_float_and_options_without_effect_are_refused(frames: np.ndarray) -> None:
    assert nrf.run(small(), frames, precision="float64").provenance.runtime == "reference"
    with pytest.raises(InputError, match="runtime has no effect on a graph"):
        nrf.run(small(), frames, runtime="lava")
    with pytest.raises(InputError, match="device has no effect on a program"):
        nrf.run(nrf.lower(small(), "loihi2"), frames, device="cpu")
    with pytest.raises(InputError, match="device is 'tpu', expected cpu"):
        nrf.run(small(), frames, device="tpu")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: nrf.read("m.nir", rest="zero"), "unknown option 'rest'; did you mean 'reset'?"),
        (lambda: nrf.lower(small(), "loihi2", calibrat=[]), "did you mean 'calibrate'?"),
        (lambda: nrf.conform(small(), "loihi2", runtime=["lava"]), "did you mean 'runtimes'?"),
        (lambda: nrf.load_chip("loihi"), "did you mean 'loihi2'?"),
        (
            lambda: nrf.run(nrf.lower(small(), "loihi2"), np.zeros((3, 4)), runtime="lav"),
            "did you mean 'lava'?",
        ),
        (lambda: nrf.lower(small(), "loihi2", format="nett"), "did you mean 'net'?"),
        (lambda: nrf.lower(small(), "loihi2", approximate=True), "approximates nothing"),
        (lambda: nrf.lower(7, "loihi2"), "graph is the int 7, expected Graph or str or Path"),
        (lambda: nrf.lower("gone.nir", "loihi2"), "gone.nir: "),
        (lambda: nrf.lower(small()), "nrf.lower: missing a required argument: 'chip'"),
        (lambda: nrf.lower(small(), "loihi2", calibrate="clips"), "calibrate is the str 'clips', expected"),
        (lambda: nrf.lower(small(), "loihi2", weights=8), "expected 'auto' or '8' or '16'"),
        (lambda: nrf.lower(small(), "speck2f", weights="16"), "weights is '16', speck2f has auto"),
        (
            lambda: nrf.run(nrf.lower(small(), "loihi2"), ZEROS, options=RunOptions(board="a")),
            "runtime 'builtin' of loihi2 does not use board; leave it out",
        ),
        (
            lambda: nrf.run(nrf.lower(small(), "speck2f"), ZEROS, options=RunOptions(choices={"a": "b"})),
            "runtime 'builtin' of speck2f does not use choices",
        ),
        (
            lambda: nrf.conform(small(), "loihi2", [ZEROS], program=nrf.lower(deep(), "loihi2")),
            "lowered from another graph: 'later' is not in the graph; lower small again",
        ),
        (lambda: nrf.conform(small(), "loihi2", repeats=0), "repeats is 0, expected at least 1"),
        (lambda: nrf.tune(small(), "loihi2", [ZEROS] * 8, seed=-1), "seed is -1, expected at least 0"),
        (lambda: RunOptions(seed=-1), "seed is -1, expected at least 0"),
        (lambda: Contract(dt="1e-3"), "dt is '1e-3', expected a number"),
        (
            lambda: nrf.run(small(), [[1, 0]]),
            "frames is the list [[1, 0]], expected ndarray or Events or str or Path",
        ),
        (
            lambda: nrf.run(7, np.zeros((3, 4))),
            "model is the int 7, expected Graph or Program or str or Path",
        ),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(call, line) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_everything_says_what_it_is_in_one_line(frames: np.ndarray) -> None:
    graph, chip = small(), nrf.load_chip("loihi2")
    program = nrf.lower(graph, chip)
    report = nrf.conform(graph, chip, [Clip("noise", frames)], runtimes=["builtin"])
    for thing in (graph, graph.contract, chip, program, nrf.run(graph, frames), report):
        assert "\n" not in repr(thing) and 20 < len(repr(thing)) < 250, repr(thing)
    assert "neurons, checksum" in repr(graph) and "loihi2" in repr(program) and "Intel" in repr(chip)
    assert report._repr_html_().startswith("<p>small on loihi2") and "<svg" in graph._repr_html_()


def test_equality_is_about_what_is_computed(frames: np.ndarray) -> None:
    assert small("one") == small("other") != small(weight=0.25)
    assert nrf.lower(small("one"), "loihi2") == nrf.lower(small("other"), "loihi2")
    assert nrf.lower(small(), "loihi2") != nrf.lower(small(weight=0.3), "loihi2")
    assert nrf.load_chip("loihi2") == nrf.load_chip("loihi2") != nrf.load_chip("speck2f")
    assert len({small("one"), small("other")}) == 1
