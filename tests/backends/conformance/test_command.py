"""`nrf conform` as a user meets it: exit codes, tables, files, and one line for what is wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest
from test_ladder import clips, tracker

from nrf.backends.conformance.clips import made_clips
from nrf.cli import app
from nrf.cli.common import report_errors
from nrf.export import write_graph


@pytest.fixture
def model(tmp_path):
    write_graph(tmp_path / "model.nir", tracker())
    return tmp_path / "model.nir"


@pytest.fixture
def clip_file(tmp_path):
    (one,) = clips()
    np.savez(tmp_path / "clip.npz", frames=one.frames, coordinates=one.truth)
    return tmp_path / "clip.npz"


@pytest.fixture
def nrf(monkeypatch, capsys):
    """Run the command line in this process; gives exit code, output and error lines."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["nrf", *map(str, words)])
        code = report_errors(app)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_a_model_that_conforms_gives_0_a_table_and_two_files(nrf, model, clip_file, tmp_path):
    words = ("--target", "loihi2", "--runtime", "builtin", "--input", clip_file, "-o", tmp_path / "report")
    code, out, _ = nrf("conform", model, *words)
    assert code == 0
    assert "lif1" in out and "pass" in out and "report.html" in out
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["verdict"] == "pass" and report["clips"][0]["truth"] is True
    assert "<title>pass: " in (tmp_path / "report" / "report.html").read_text()


def test_a_model_that_does_not_conform_gives_1_and_names_node_step_and_neuron(nrf, model, tmp_path):
    other = tracker()
    other.nodes["conv1"].weight[:] = other.nodes["conv1"].weight[::-1].copy()
    write_graph(tmp_path / "other.nir", other)
    assert (
        nrf("lower", tmp_path / "other.nir", "--target", "loihi2", "-o", tmp_path / "other.program")[0] == 0
    )
    words = ("--target", "loihi2", "--runtime", "builtin", "--program", tmp_path / "other.program")
    code, out, _ = nrf("conform", model, *words, "-o", tmp_path)
    assert code == 1
    assert "first divergence, builtin: node 'lif1', step " in out and "v = " in out


def test_a_strangers_graph_without_input_gives_3_and_the_line_asks_for_one(nrf, model, tmp_path):
    words = ("conform", model, "--target", "loihi2", "--runtime", "builtin", "-o", tmp_path)
    code, out, _ = nrf(*words)
    assert code == 3
    summary = next(line for line in out.splitlines() if "checks passed, 0 failed" in line)
    assert "no verdict (the input was made up here" in summary and "--input" in summary


def test_a_silent_network_gives_3_and_the_populations_are_named(nrf, model, tmp_path):
    np.savez(tmp_path / "silence.npz", frames=np.zeros((20, 2, 10, 12)))
    words = ("--target", "loihi2", "--runtime", "builtin", "--input", tmp_path / "silence.npz")
    code, out, _ = nrf("conform", model, *words, "-o", tmp_path / "report")
    assert code == 3 and "no verdict ('lif1' never fires on this input)" in out
    assert json.loads((tmp_path / "report" / "report.json").read_text())["verdict"] == "no verdict"


def test_json_is_the_report(nrf, model, clip_file, tmp_path):
    words = ("--target", "loihi2", "--runtime", "builtin", "--input", clip_file, "-o", tmp_path, "--json")
    code, out, _ = nrf("conform", model, *words)
    assert code == 0 and json.loads(out)["schema"] == "nrf.conformance.report"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["{model}"], "conform takes one model and one --target, or --cases"),
        (["nosuch.nir", "--target", "loihi2"], "nosuch.nir: no such file"),
        (["{model}", "--target", "nosuch"], "unknown target 'nosuch'; known are "),
        (
            ["{model}", "--target", "loihi2", "--runtime", "nosuch"],
            "unknown runtime 'nosuch'; known are builtin",
        ),
        (["{model}", "--target", "loihi2", "--input", "nosuch.npz"], "nosuch.npz: no such file or folder"),
        (["{model}", "--target", "loihi2", "--program", "{model}"], "not a program of nrf"),
        (["--cases", "--target", "nosuch"], "unknown target 'nosuch'"),
        (["--case", "nosuch", "--target", "loihi2"], "unknown case 'nosuch'"),
    ],
)
def test_a_wrong_call_gives_2_and_one_line(nrf, model, tmp_path, words, line):
    words = [str(model) if word == "{model}" else word for word in words]
    code, out, err = nrf("conform", *words, "-o", tmp_path)
    assert code == 2 and out == ""
    assert err.startswith("error: ") and line in err and err.count("\n") == 1


def test_cases_by_name(nrf, tmp_path):
    words = ("--case", "linear", "--case", "if_floor", "--target", "loihi2", "--runtime", "builtin")
    code, out, _ = nrf("conform", *words, "--scoreboard", tmp_path / "board.md")
    assert code == 0 and "1 passed, 0 failed, 1 not applicable" in out
    assert "| linear | pass |" in (tmp_path / "board.md").read_text()


def test_cases_can_be_written_as_files(nrf, tmp_path):
    code, out, _ = nrf("conform", "--write-cases", tmp_path / "cases")
    assert code == 0 and "cases: 3" in out
    assert (tmp_path / "cases" / "conv2d" / "model.nir").is_file()


def test_clips_are_made_for_a_graph_that_says_nothing_about_its_data():
    one, two = made_clips(tracker(), 2)
    assert one.frames.shape[1:] == (2, 10, 12) and one.truth is None
    assert not np.array_equal(one.frames, two.frames)


def test_help_is_quick():
    code = "import nrf.cli, sys; sys.exit(any(m in sys.modules for m in ('torch', 'numba', 'joblib')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_trained_graph_is_compared_on_clips_that_it_was_not_trained_on():
    from nrf.backends.lowering.calibration import lower_options
    from nrf.config import to_table
    from nrf.export.trained import from_network
    from nrf.model.network import build
    from nrf.training.presets import load_preset

    config = load_preset("tiny")
    graph = from_network(build(config.network))
    graph.metadata["config"] = json.dumps(to_table(config))
    (held_out,), options = made_clips(graph, 1), lower_options(graph)
    training = options.calibration
    assert options.origin == "training data" and training is not None
    assert held_out.truth.shape == (config.data.shapes.steps, 3, 2)
    assert held_out.frames.shape == training[0].shape
    assert not any(np.array_equal(held_out.frames, clip) for clip in training)
