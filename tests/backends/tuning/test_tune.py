"""Tuning as a user meets it: from a graph and clips to a tuned file and an honest table."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import nir
import numpy as np
import pytest

import nrf
from nrf.backends import reference
from nrf.backends.border import LowerOptions, backend_of, load_chip
from nrf.backends.tuning import Options, tune
from nrf.backends.tuning.figures import TaughtClip, compare, margin, play
from nrf.backends.tuning.stages import ORDERS, Tuner, split
from nrf.backends.tuning.state import SavedStages
from nrf.cli import app
from nrf.cli.common import report_errors
from nrf.errors import InputError
from nrf.events import Sample
from nrf.export import Contract, Graph, canonical, read_graph, write_graph

SHORT = Options(iterations=12)


def classifier(contract: Contract, leaky: bool, seed: int = 0) -> Graph:
    """Two layers on 2x8x8 pixels that tell in which of six places most events are."""
    rng = np.random.default_rng(seed)
    dt = contract.dt or 1.0
    places = np.zeros((6, 2, 8, 8))
    for number in range(6):
        row, column = divmod(number, 3)
        places[number, :, 4 * row : 4 * row + 4, 3 * column : 3 * column + 2] = 1

    def neurons(*shape: int) -> nir.NIRNode:
        one = np.ones(shape)
        return (
            nir.LIF(one * 8 * dt, one * 8, 0 * one, one, 0 * one) if leaky else nir.IF(one / dt, one, 0 * one)
        )

    kernel = rng.normal(0, 0.15, (4, 2, 3, 3)) + np.eye(4, 2)[:, :, None, None] * 0.15
    seen = np.stack([places[:, 0]] * 4, 1) - 0.3
    nodes = {
        "input": nir.Input(np.array([2, 8, 8])),
        "conv": nir.Conv2d(None, kernel, 1, 1, 1, 1, np.zeros(4)),
        "first": neurons(4, 8, 8),
        "flatten": nir.Flatten(None, 0, -1),
        "linear": nir.Affine(0.12 * seen.reshape(6, -1), np.zeros(6)),
        "second": neurons(6),
        "output": nir.Output(None),
    }
    names = list(nodes)
    edges = list(pairwise(names))
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), contract, "classifier")


def clips(count: int, seed: int = 0, mean: float = 0.4) -> list[Sample]:
    """Twelve steps of events, most of them in one of six places."""
    samples = []
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        row, column = divmod(label := int(rng.integers(6)), 3)
        rates = np.full((2, 8, 8), 0.03)
        rates[:, 4 * row : 4 * row + 4, 3 * column : 3 * column + 2] = mean
        samples.append(Sample(f"{number}", rng.poisson(rates, (12, 2, 8, 8)).astype(np.float32), label=label))
    return samples


LEAKY = classifier(Contract(dt=1e-3), leaky=True)


def test_a_leaky_classifier_does_on_speck_what_it_does_in_float() -> None:
    tuned = tune(LEAKY, load_chip("speck2f"), clips(80, mean=1.0), Options(iterations=30))
    rows = {(row.stage, row.runtime): row.figures for row in tuned.rows}
    before, after = rows["before", "asynchronous"], rows[tuned.did["kept"], "asynchronous"]
    assert tuned.gained
    assert after.loss < before.loss / 2
    assert 0.85 < after.ratio < 1.15
    assert after.agreement is not None and before.agreement is not None
    assert after.agreement >= max(before.agreement, 0.9)
    assert {runtime for _, runtime in rows} == {"asynchronous", "builtin"}
    did = json.loads(tuned.graph.metadata["tuned"])
    assert did["original"]["checksum"] == LEAKY.checksum
    assert did["clips"] == {"train": 40, "held": 20, "test": 20}
    # The result is on the chip's grid: nothing is rounded any more, and step by step it is exact.
    chip = load_chip("speck2f")
    program = backend_of(chip).lower(tuned.graph, chip, LowerOptions())
    assert {loss.rounding for loss in program.lowered.losses} == {"exact"}
    assert nrf.conform(tuned.graph, chip, [clips(1)[0].frames], runtimes=["builtin"]).verdict == "pass"


def test_several_spikes_per_step_become_one_on_loihi() -> None:
    contract = Contract(dt=1e-3, reset="subtract", fire="ge", max_spikes=0)
    graph = classifier(contract, leaky=False)
    tuned = tune(graph, load_chip("loihi2"), clips(64, mean=1.0), Options(iterations=30))
    rows = {row.stage: row.figures for row in tuned.rows}
    assert tuned.gained and tuned.graph.contract.max_spikes == 1
    assert rows["before"].ratio < 0.7
    assert abs(1 - rows["tuned"].ratio) < 0.15
    assert rows["tuned"].loss < 0.6 * rows["before"].loss


def test_no_gain_leaves_the_graph_as_it_was() -> None:
    """A graph that the chip follows to the last spike cannot be improved."""
    contract = Contract(dt=1e-3, reset="zero", fire="gt")
    graph = nrf.on_grid(classifier(contract, leaky=False), "loihi2")
    tuned = tune(graph, load_chip("loihi2"), clips(24), SHORT)
    assert not tuned.gained
    assert tuned.graph is graph
    assert tuned.summary[-1] == "no gain on held-back clips: the graph is left as it was"


def test_a_silent_teacher_is_refused() -> None:
    silent = [Sample("silent", np.zeros((12, 2, 8, 8), np.float32))] * 8
    with pytest.raises(InputError, match="its output is silent in all clips"):
        tune(LEAKY, load_chip("speck2f"), silent, SHORT)


def test_test_clips_decide_nothing() -> None:
    """Other test clips change the table and nothing else."""
    samples = clips(24)
    order = np.random.default_rng(SHORT.seed).permutation(24)
    others = list(samples)
    for number in order[18:]:
        others[number] = Sample("other", samples[number].frames[::-1] * 2, label=0)
    first, second = (tune(LEAKY, load_chip("speck2f"), some, SHORT) for some in (samples, others))
    assert first.graph.checksum == second.graph.checksum
    assert first.rows[0].figures.error != second.rows[0].figures.error


def test_every_clip_has_one_purpose() -> None:
    frames = np.zeros((2, 2, 8, 8), np.float32)
    run = reference.run(LEAKY, frames)
    some = [TaughtClip(frames, run) for _ in range(600)]
    parts = split(some, seed=4)
    ids = [id(clip) for part in (parts.train, parts.held, parts.test) for clip in part]
    assert sorted(ids) == sorted(map(id, some))
    assert (len(parts.train), len(parts.held), len(parts.test)) == (300, 128, 172)
    assert [id(c) for c in split(some, seed=4).test] == [id(c) for c in parts.test]


def test_held_back_clips_decide_by_several_orders_of_events() -> None:
    chip = load_chip("speck2f")
    backend = backend_of(chip)
    assert backend.student is not None
    samples = clips(32, mean=1.0)
    runs = [reference.run(LEAKY, sample.frames, membranes=False) for sample in samples]
    parts = split([TaughtClip(s.frames, run) for s, run in zip(samples, runs, strict=True)], 0)
    tuner = Tuner(LEAKY, chip, backend, backend.student(chip), parts, SHORT, SavedStages(None, ""), print)
    program = tuner.lower(LEAKY, approximate=True)
    count = len(parts.held)
    losses = [
        compare(
            [
                play(backend, program, clip.frames, "asynchronous", order * count + number)
                for number, clip in enumerate(parts.held)
            ],
            parts.held,
            LEAKY,
        ).losses
        for order in range(ORDERS)
    ]
    assert not np.allclose(losses[0], losses[1])  # orders do differ
    assert np.allclose(tuner.held(program).losses, np.mean(losses, axis=0))


def test_figures_are_those_of_their_definition() -> None:
    """Against plain NumPy on dense counts."""
    samples = clips(10)
    runs = [reference.run(LEAKY, clip.frames) for clip in samples]
    turned = [reference.run(LEAKY, clip.frames[:, ::-1].copy()) for clip in samples]
    told = [TaughtClip(clip.frames, run, clip.label) for clip, run in zip(samples, runs, strict=True)]
    found = compare(turned, told, LEAKY)
    ours = np.stack([run.dense("second").sum(0) for run in turned])
    theirs = np.stack([run.dense("second").sum(0) for run in runs])
    assert found.ratio == pytest.approx(ours.sum() / theirs.sum())
    assert found.error == pytest.approx(np.abs(ours - theirs).sum() / theirs.sum())
    assert found.agreement == pytest.approx(np.mean(ours.argmax(1) == theirs.argmax(1)))
    assert found.accuracy == pytest.approx(np.mean(ours.argmax(1) == [clip.label for clip in samples]))
    dense = [[run.dense("first") for run in some] for some in (runs, turned)]
    both = sum(np.minimum(a, b).sum() for a, b in zip(*dense, strict=True))
    assert found.layers["first"][1] == pytest.approx(2 * both / sum(np.sum(part) for part in dense))
    same = compare(runs, told, LEAKY)
    assert (same.agreement, same.ratio, same.error, same.loss) == (1, 1, 0, 0)
    assert not same.better_than(same) and same.better_than(found)
    ranked = np.sort(theirs, axis=1)
    assert margin(told, LEAKY)[1] == pytest.approx(np.mean(ranked[:, -1] - ranked[:, -2] <= 1))


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """The command in this process: exit code and what it says."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["nrf", *map(str, words)])
        code = report_errors(app)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def stored(folder: Path, count: int = 24) -> tuple[Path, Path]:
    """A graph and its clips as files."""
    samples = clips(count)
    write_graph(folder / "model.nir", LEAKY)
    labels = [sample.label for sample in samples]
    np.savez(folder / "clips.npz", frames=np.stack([sample.frames for sample in samples]), labels=labels)
    return folder / "model.nir", folder / "clips.npz"


def test_the_command_writes_a_graph_and_prints_the_table(tmp_path: Path, call) -> None:  # type: ignore[no-untyped-def]
    model, samples = stored(tmp_path)
    out = tmp_path / "tuned.nir"
    words = ("tune", model, "--target", "speck2f", "-i", samples, "-o", out, "--iterations", "10")
    code, said, err = call(*words)
    assert code == 0, err
    assert "clips: 12 to train on, 6 held back, 6 in the table" in said
    assert "asynchronous" in said and "accuracy" in said
    assert "layer 2 of 2, 'second'" in err and "s left" in err
    assert read_graph(out).metadata["grid"] == "speck2f"
    assert not (tmp_path / "tuned.nir.state").exists()
    report = nrf.conform(read_graph(out, classes=0), "speck2f", [samples], runtimes=["builtin"])
    agree = {(m.runtime, m.rung): m.figures["agreement"] for m in report.measured if "agreement" in m.figures}
    assert agree["builtin", "L3"] == 1.0  # the chip does what the tuned graph does
    assert {("builtin", "golden"), ("reference", "golden")} <= set(agree)  # and both face the original
    assert report.verdict == "pass"
    assert call("conform", out, "--target", "speck2f", "-i", model, "-o", tmp_path / "r")[0] == 2
    write_graph(tmp_path / "tuned.original.nir", read_graph(out))
    with pytest.raises(InputError, match=r"tuned\.original\.nir: checksum .* was tuned from"):
        nrf.conform(out, "speck2f", [samples], runtimes=["builtin"])
    assert call("tune", model, "--target", "speck2f", "-i", samples, "-o", out, "--device", "cuda:7")[0] == 2
    nowhere = tmp_path / "nowhere" / "tuned.nir"
    code, _, err = call("tune", model, "--target", "speck2f", "-i", samples, "-o", nowhere)
    assert code == 2 and "nowhere does not exist" in err and "teacher" not in err  # before any work
    np.savez(tmp_path / "few.npz", frames=np.zeros((7, 12, 2, 8, 8), np.float32))
    code, _, err = call("tune", model, "--target", "speck2f", "-i", tmp_path / "few.npz", "-o", out)
    assert code == 2 and "at least 8 clips to split, here are 7" in err and "teacher" not in err
    code, _, err = call(*words, "--golden", samples)
    assert code == 2 and "golden recordings bring their own clips" in err


def test_a_run_that_was_killed_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    model, samples = stored(tmp_path)
    words = ["tune", model, "--target", "speck2f", "-i", samples, "--iterations", "25", "--json", "-o"]
    command = [sys.executable, "-c", "from nrf.cli import main; main()", *map(str, words)]
    killed, whole = tmp_path / "killed.nir", tmp_path / "whole.nir"
    run = subprocess.Popen([*command, str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state, until = Path(f"{killed}.state"), time.monotonic() + 120
    while not state.exists() and time.monotonic() < until:
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert state.exists() and not killed.exists()
    other = read_graph(model)
    with pytest.raises(InputError, match=r"killed\.nir\.state: was left by a run with another"):
        nrf.tune(other, "speck2f", [samples], iterations=26, out=killed)
    for out in (killed, whole):
        nrf.tune(other, "speck2f", [samples], iterations=25, out=out)
    assert read_graph(killed).checksum == read_graph(whole).checksum
    assert not state.exists()


def test_golden_recordings_are_the_teacher(tmp_path: Path) -> None:
    """What another framework recorded is learnt, not what our reference would say."""
    silent = []
    for number, sample in enumerate(clips(12)):
        counts = reference.run(LEAKY, sample.frames).dense("second")
        np.savez(tmp_path / f"{number}.npz", input=sample.frames, second=np.roll(counts, 1, axis=1))
        silent.append(tmp_path / f"{number}.npz")
    tuned = nrf.tune(LEAKY, "speck2f", golden=silent, iterations=30)
    rows = {row.stage: row.figures for row in tuned.rows if row.runtime == "asynchronous"}
    assert tuned.did["teacher"] == "golden"
    assert rows["before"].agreement is not None and rows["before"].agreement < 0.4
    assert rows["tuned"].loss < rows["before"].loss
