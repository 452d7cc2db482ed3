"""Classes: read as the contract says, compared clip by clip, and counted as plain NumPy counts them."""

from dataclasses import replace
from itertools import pairwise

import nir
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_command import nrf as nrf  # a fixture

from nrf.backends import reference
from nrf.backends.border import Provenance, Recording, Spikes
from nrf.backends.conformance import Clip, conform
from nrf.backends.conformance.classes import NONE, decide
from nrf.export import Contract, canonical, write_graph

CLASSES, INPUTS, STEPS = 4, 8, 25


def classifier(classes=0, **contract):
    rng = np.random.default_rng(1)
    weight = rng.normal(0.2, 0.4, (CLASSES, INPUTS)).astype(np.float32)
    nodes = {
        "input": nir.Input({"input": np.array([INPUTS])}),
        "fc": nir.Linear(weight),
        "lif": nir.LIF(*(np.full(CLASSES, value) for value in (5e-3, 1.0, 0.0, 0.12, 0.0))),
        "output": nir.Output({"output": np.array([CLASSES])}),
    }
    graph = nir.NIRGraph(nodes, list(pairwise(nodes)), type_check=False)
    return canonical(graph, Contract(dt=1e-3, classes=classes, **contract), "classifier")


def clips(count=6, labels=True):
    rng = np.random.default_rng(2)
    rates = rng.uniform(0, 0.8, (count, 1, INPUTS))
    frames = (rng.random((count, STEPS, INPUTS)) < rates).astype(np.float32)
    return [Clip(f"clip {n}", each, label=n % CLASSES if labels else None) for n, each in enumerate(frames)]


@pytest.mark.parametrize("window", [0, 1, 7])
def test_a_class_is_the_largest_sum_over_the_last_steps(window):
    graph = classifier(window)
    for clip in clips():
        run = reference.run(graph, clip.frames)
        counts = run.dense("lif")[-window:].sum(0)
        assert np.array_equal(run.answers["lif"], counts)
        assert run.decisions["lif"] == (None if np.ptp(counts) == 0 else int(np.argmax(counts)))


def test_the_membrane_at_the_last_step_can_decide():
    run = reference.run(classifier(1, output="membrane"), clips()[0].frames)
    assert np.allclose(run.answers["lif"], run.membrane("lif")[-1]) and run.decisions["lif"] is not None


def test_a_late_answer_is_read_late():
    late, spikes = 3, np.zeros((10, 2), int)
    spikes[late + 4, 1] = 1  # the answer to step 4
    spikes[: late - 1, 0] = 1  # before anything could be answered
    run = Recording(
        10,
        {"out": (2,)},
        {"out": Spikes.from_dense(spikes)},
        Provenance("x", "chip"),
        latencies={"out": late},
    )
    contract = Contract(classes=0)
    assert run.scores_of("out", contract).tolist() == [0, 1]
    assert run.scores_of("out", contract, stop=4).tolist() == [0, 0]


def test_a_self_comparison_agrees_everywhere(mirror):
    report = conform(classifier(), mirror, clips(), runtimes=["builtin", "same"], tolerances=AGREE)
    assert report.verdict == "pass"
    (check,) = [c for c in report.checks if c.runtime == "same" and c.figure == "agreement"]
    assert check.shown == "1 (6 of 6 decided clips agree)"
    assert report.clips[0]["label"] == 0 and set(report.clips[0]["classes"]["classes"]) == {
        "reference",
        "builtin",
        "same",
    }


AGREE = {"L3": {"agreement_min": 0.9, "accuracy_drop_max": 0.5}}


def test_other_classes_fail_and_the_confusion_matrix_counts_them(mirror):
    report = conform(classifier(), mirror, clips(12), runtimes=["noise"], tolerances=AGREE)
    entry = next(e for e in report.measured if (e.runtime, e.rung, e.node) == ("noise", "L3", "classes"))
    decided = [
        (said["reference"], said["noise"], clip["label"])
        for clip in report.clips
        for said in [clip["classes"]["classes"]]
    ]
    agree = sum(ours == theirs for ours, theirs, _ in decided)
    assert entry.figures["agreement"] == agree / 12 < 0.9 and report.verdict == "fail"
    for name, column in (("reference", 0), ("labels", 2)):
        wanted = np.zeros((CLASSES + 1, CLASSES + 1), int)
        for row in decided:
            wanted[row[column], row[1]] += 1
        assert np.array_equal(entry.confusion[name], wanted)
    assert entry.figures["accuracy"] == sum(found == label for _, found, label in decided) / 12


def test_where_nothing_is_decided_there_is_no_verdict(mirror):
    silence = [Clip("silence", np.zeros((9, INPUTS), np.float32))]
    report = conform(classifier(), mirror, silence, runtimes=["builtin"], tolerances=AGREE)
    assert report.verdict == "no verdict"
    silent, tied = report.doubts
    assert silent == "'lif' never fires on this input"
    assert tied.startswith("classes: all classes have the same score")


def test_the_class_of_a_golden_recording_is_compared_too(mirror):
    graph, (clip,) = classifier(), clips(1)
    own = reference.run(graph, clip.frames)
    golden = replace(own, provenance=Provenance("golden", "simulation"))
    report = conform(graph, mirror, [replace(clip, golden=golden)], runtimes=["noise"], tolerances=AGREE)
    named = {(c.runtime, c.rung, c.figure): c.verdict for c in report.checks if c.node == "classes"}
    assert named["reference", "golden", "agreement"] == "pass"
    assert ("noise", "golden", "agreement") in named


def test_a_chip_that_answers_late_is_given_the_time_to_answer(tmp_path, nrf):
    """On Loihi every synapse takes a step: the class must still be that of the whole clip."""
    write_graph(tmp_path / "model.nir", classifier())
    np.savez(tmp_path / "clips.npz", frames=[c.frames for c in clips()], labels=[c.label for c in clips()])
    flags = ("--target", "loihi2", "--runtime", "builtin", "-i", tmp_path / "clips.npz", "-o", tmp_path / "r")
    code, out, _ = nrf("conform", tmp_path / "model.nir", *flags)
    assert code == 0 and "6 of 6 decided clips agree with the reference" in out and "accuracy" in out
    np.savez(tmp_path / "clip.npz", frames=clips()[1].frames)
    nrf("lower", tmp_path / "model.nir", "--target", "loihi2", "-o", tmp_path / "p")
    answers = [
        nrf("run", tmp_path / name, "-i", tmp_path / "clip.npz", "-o", tmp_path / "out.npz")[1]
        for name in ("model.nir", "p")
    ]
    lines = [next(line for line in answer.splitlines() if line.startswith("class ")) for answer in answers]
    assert lines[0] == lines[1]


scores = arrays(np.float64, CLASSES, elements=st.integers(0, 5).map(float))


@given(st.lists(st.tuples(scores, scores, st.integers(0, CLASSES - 1)), min_size=1, max_size=8))
def test_sums_over_clips_are_what_numpy_counts(rows):
    total = sum((decide(*row) for row in rows[1:]), decide(*rows[0]))
    ours, theirs = ([NONE if np.ptp(row[k]) == 0 else np.argmax(row[k]) for row in rows] for k in (0, 1))
    assert total.wanted.tolist() == ours and total.found.tolist() == theirs
    counted = [(a, b) for a, b in zip(ours, theirs, strict=True) if (a, b) != (NONE, NONE)]
    figures = total.figures()
    assert ("agreement" in figures) == bool(counted)
    if counted:
        assert figures["agreement"] == pytest.approx(np.mean([a == b for a, b in counted]))
    assert sum(map(sum, total.confusion()["labels"])) == len(rows)
    assert np.all(total.margins >= 0)
