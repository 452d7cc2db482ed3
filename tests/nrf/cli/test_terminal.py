"""What a terminal shows: 80 columns, whole words, numbers to the right, and nothing from a file that acts."""

import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path

import nir
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.cli import app
from nrf.cli.common import print_table, report_errors
from nrf.events import Sample
from nrf.export import Contract, canonical, write_graph

ESC = chr(27)


def classifier(classes=0):
    """Eight inputs, four neurons, read as a class."""
    weight = np.random.default_rng(1).normal(0.2, 0.4, (4, 8)).astype(np.float32)
    nodes = {
        "input": nir.Input({"input": np.array([8])}),
        "fc": nir.Linear(weight),
        "lif": nir.LIF(*(np.full(4, value) for value in (5e-3, 1.0, 0.0, 0.12, 0.0))),
        "output": nir.Output({"output": np.array([4])}),
    }
    graph = nir.NIRGraph(nodes, list(pairwise(nodes)), type_check=False)
    return canonical(graph, Contract(dt=1e-3, classes=classes), "classifier")


def clips():
    """Six clips of as many rates, labelled."""
    rng = np.random.default_rng(2)
    frames = (rng.random((6, 25, 8)) < rng.uniform(0, 0.8, (6, 1, 8))).astype(np.float32)
    return [Sample(f"clip {n}", each, label=n % 4) for n, each in enumerate(frames)]


@pytest.fixture
def nrf(monkeypatch, capsys):
    def run(*words: object, columns: int = 80) -> tuple[int, str, str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["nrf", *map(str, words)])
        code = report_errors(app)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_graph(tmp_path / "model.nir", classifier())
    frames, labels = [c.frames for c in clips()], [c.label for c in clips()]
    np.savez(tmp_path / "clips.npz", frames=frames, labels=labels)
    return tmp_path / "model.nir"


def test_everything_fits_80_columns_and_obeys_them_in_a_pipe(nrf, model, tmp_path):
    where = ("--target", "loihi2", "--runtime", "builtin", "-i", tmp_path / "clips.npz", "-o", tmp_path / "r")
    for words in (("check", model), ("run", model, "-i", tmp_path / "clips.npz"), ("conform", model, *where)):
        _, out, err = nrf(*words)
        paths = (str(tmp_path), str(model))  # which are never cut
        assert all(len(line) <= 80 for line in (out + err).splitlines() if not any(p in line for p in paths))
        for word in (
            ("synapses", "parameters")
            if words[0] == "check"
            else ("agreement",)
            if "conform" in words
            else ()
        ):
            assert word in out
    environment = {**os.environ, "COLUMNS": "60"}
    command = [
        sys.executable,
        "-c",
        "from nrf.cli.common import print_table as p; p(('a', 'b'), [('x ' * 60, 1)])",
    ]
    wide = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert max(map(len, wide.splitlines())) <= 60


def test_numbers_are_aligned_to_the_right_and_words_stay_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("name", "count"), [("alpha beta gamma delta epsilon", 5), ("b", 12345)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].rstrip().endswith("12,345")
    assert any(line.rstrip().endswith("     5") for line in lines)
    assert all(word in " ".join(lines) for word in ("gamma", "epsilon"))


WORDS = st.text("abcdefghij", min_size=1, max_size=14)
TABLES = st.integers(1, 9).flatmap(
    lambda columns: st.lists(
        st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=columns, max_size=columns),
        min_size=2,
        max_size=5,
    )
)


@settings(max_examples=40, deadline=None)
@given(TABLES, st.integers(40, 120))
def test_no_word_of_any_table_is_cut_at_any_width(rows, columns):
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        patch.setenv("COLUMNS", str(columns))
        print_table(rows[0], rows[1:])
    lines = out.getvalue().splitlines()
    shown = set(out.getvalue().replace(":", " ").split())
    assert all(len(line) <= columns for line in lines)
    assert all(word in shown for row in rows[1:] for cell in row for word in cell.split())


def test_the_table_of_the_demo_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    titles = "model", "chip", "runtime", "lowered", "spikes, worst F1", "px from reference", "px from truth"
    row = "speck2f", "speck2f", "asynchronous", "approximately", "0.9999984", "14.92, 31.36", "15.86, 31.19"
    print_table((*titles, "verdict"), [(*row, "does not fit")])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) == 80 and "lowered: " not in shown  # a table, not a list
    assert all(word in shown.split() for word in ("asynchronous", "approximately", "31.36", "31.19", "fit"))


def test_names_from_files_cannot_act(capsys, nrf, tmp_path):
    hostile = f"lif{ESC}[31m[red]x"
    print_table(("name",), [(hostile,)])
    shown = capsys.readouterr().out
    assert ESC not in shown and "\\x1b[31m[red]x" in shown
    code, _, err = nrf("check", tmp_path / f"gone{ESC}]0;x.nir")
    assert code == 2 and ESC not in err


def test_flags_read_as_they_are_typed(nrf):
    for command in ("conform", "check", "diff"):
        _, out, _ = nrf(command, "--help")
        assert "--json" in out and "<bool>" not in out


def test_check_without_dt_still_prints_the_table(nrf, tmp_path):
    graph = classifier()
    nir.write(tmp_path / "plain.nir", nir.NIRGraph(dict(graph.nodes), list(graph.edges), type_check=False))
    code, out, err = nrf("check", tmp_path / "plain.nir")
    assert code == 0 and "LIF" in out and "no dt is known" in err and "dt would add" in err
    assert nrf("check", tmp_path / "plain.nir", "--target", "loihi2")[0] == 2


def test_a_step_far_above_a_time_constant_is_a_warning(nrf, tmp_path):
    graph = classifier()
    nir.write(tmp_path / "plain.nir", nir.NIRGraph(dict(graph.nodes), list(graph.edges), type_check=False))
    np.savez(tmp_path / "clip.npz", frames=clips()[0].frames)
    words = ("-i", tmp_path / "clip.npz", "-o", tmp_path / "out.npz")
    assert "shorter than dt" in nrf("run", tmp_path / "plain.nir", "--dt", 1.0, *words)[2]


def test_many_clips_are_run_in_several_processes_and_kept(nrf, model, tmp_path):
    words = ("run", model, "-i", tmp_path / "clips.npz")
    plain = nrf(*words)[1]
    shared = nrf(*words, "--jobs", 2, "-o", tmp_path / "kept")[1]
    assert plain == shared and "6 clips" in plain and "accuracy" in plain
    assert len(list((tmp_path / "kept").iterdir())) == 6


def test_a_difference_is_named_counted_and_gives_1(nrf, model, tmp_path):
    other = classifier(7)
    other.nodes["fc"].weight[1, :3] += 0.5
    write_graph(tmp_path / "other.nir", other)
    code, out, _ = nrf("diff", model, tmp_path / "other.nir", columns=120)
    assert code == 1 and "3 of 32 differ, by up to 0.5" in out and "contract: classes" in out
    assert nrf("diff", model, model)[0] == 0
    np.savez(tmp_path / "one.npz", frames=clips()[0].frames)
    for name in ("model", "other"):
        nrf("lower", tmp_path / f"{name}.nir", "--target", "loihi2", "-o", tmp_path / name)
        nrf("run", tmp_path / f"{name}.nir", "-i", tmp_path / "one.npz", "-o", tmp_path / f"{name}.rec")
    code, out, _ = nrf("diff", tmp_path / "model", tmp_path / "other", columns=160)
    assert code == 1 and "operator" in out
    code, out, _ = nrf("diff", tmp_path / "model.rec", tmp_path / "other.rec", columns=160)
    assert code == 1 and "spikes" in out and "F1" in out
    code, _, err = nrf("diff", model, tmp_path / "model.rec")
    assert code == 2 and "a graph and a recording" in err
