"""Graphs with several outputs: each is read, lowered and compared as if it were the only one."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nrf
from nrf.backends import reference
from nrf.backends.border import Recording, backend_of, chip_names
from nrf.backends.conformance.compare import overlap
from nrf.errors import InputError
from nrf.export import Contract, Graph, canonical, read_graph, write_graph
from nrf.findings import errors
from nrf.model.readout import Readout
from tests.backends.lowering.test_readout import CHIP, SIDE, STEPS, frames, spiking, tail

SHAPE = (2, SIDE, SIDE)
TAILS = ([], ["Scale"], ["LI"], ["Conv2d", "I"], ["AvgPool2d", "Delay"], ["Flatten", "Affine"])
ENDS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(TAILS)), min_size=1, max_size=3)


def built(seed: int, ends: list[tuple[str, list[str]]], contract: Contract, only: int | None = None) -> Graph:
    """input -> a -> b -> c, each with a convolution on the chips' grids, and outputs that hang on some.

    With `only`, one of the outputs alone; everything else stays.
    """
    rng = np.random.default_rng(seed)
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array(SHAPE))}
    for name in "abc":
        weight = rng.integers(-8, 24, (2, 2, 3, 3)) / 32
        nodes |= {
            f"conv {name}": nir.Conv2d(SHAPE[1:], weight, 1, 1, 1, 1, np.zeros(2)),
            name: spiking(*SHAPE),
        }
    edges = [*pairwise(nodes)]
    for n, (source, kinds) in enumerate(ends):
        more = {f"t{n} {k}": node for k, node in enumerate(tail(rng, kinds, SHAPE))}
        if only in (None, n):
            nodes |= more | {f"out {n}": nir.Output(None)}
            edges += pairwise([source, *more, f"out {n}"])
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), contract, "test")


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    ends=ENDS,
    chip=st.sampled_from(chip_names()),
    delay=st.sampled_from([0, 1]),
)
def test_every_output_is_read_as_if_it_were_the_only_one(
    seed: int, ends: list[tuple[str, list[str]]], chip: str, delay: int
) -> None:
    contract, clip = CHIP[chip].with_(delay=delay, classes=0), frames(seed)
    graph = built(seed, ends, contract)
    assert len(graph.reads) == len(ends) and not errors(nrf.check(graph, chip))
    program = nrf.lower(graph, chip, calibrate=[clip])
    wanted, found = reference.run(graph, clip), nrf.run(program, clip)
    assert program.outputs == graph.read_populations == tuple(wanted.answers) == tuple(found.answers)
    for n in range(len(ends)):
        alone = built(seed, ends, contract, only=n)
        (read,) = alone.read_populations
        assert np.array_equal(reference.run(alone, clip).answers[read], wanted.answers[read])
        maps = on_clock(wanted, read, contract)
        # Loihi 2 holds integrators in its own numbers; spikes, and what the host computes, are exact
        small = 2e-2 * (1 + np.nanmax(np.abs(maps)))
        for run in (found, nrf.run(nrf.lower(alone, chip, calibrate=[clip]), clip)):
            off = np.abs(on_clock(run, read, contract) - maps)
            assert np.isfinite(off[: STEPS - 5]).any() and np.nanmax(off) <= small, read


def on_clock(run: Recording, output: str, contract: Contract) -> Any:
    """What the host reads step by step as the contract counts them; NaN where a chip has no answer."""
    late, maps = run.latency(output), run.maps(output, contract)
    ours, theirs = overlap(run.steps, late)
    clock = np.full(maps.shape, np.nan)
    clock[ours] = maps[theirs]
    return clock


def heads(chip: str, **changes: Any) -> Graph:
    """A hidden population, the last one, and a leaky integrator that the host or the chip computes."""
    return built(5, [("a", []), ("c", []), ("b", ["LI"])], CHIP[chip].with_(**changes))


@pytest.mark.parametrize(("chip", "vendor"), [("loihi2", "lava"), ("speck2f", "sinabs")])
def test_several_outputs_are_compared_each_on_the_vendors_simulator(
    chip: str, vendor: str, tmp_path: Path
) -> None:
    if reason := backend_of(nrf.load_chip(chip)).runtimes[vendor].absent():
        pytest.skip(str(reason))
    write_graph(tmp_path / "heads.nir", heads(chip, classes=0))
    graph = read_graph(tmp_path / "heads.nir")
    clips = [frames(seed) for seed in range(2)]
    labels = [(0, 1, 1), (3, 4, 5)]
    report = nrf.conform(graph, chip, clips, runtimes=["builtin", vendor], labels=labels, out=tmp_path)
    assert report.verdict == "pass", report.failures
    tasks = {f"classes of {name}" for name in ("a", "c", "t2 0")}
    judged = {
        (check.runtime, check.node) for check in report.checks if check.rung == "L3" and check.value == 1
    }
    assert judged == {(runtime, task) for runtime in ("builtin", vendor) for task in tasks}
    answers = reference.run(graph, clips[1]).decisions
    assert report.clips[1]["classes"]["classes of c"] == dict.fromkeys(
        ("reference", "builtin", vendor), answers["c"]
    )
    entry = next(
        each for each in report.measured if each.node == "classes of t2 0" and each.runtime == vendor
    )
    decisions = [reference.run(graph, clip).decisions["t2 0"] for clip in clips]
    assert entry.figures["accuracy"] == np.mean(np.array(decisions) == [1, 5])
    assert "classes of t2 0" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("chip", chip_names())
def test_the_coordinates_of_every_output_are_compared(chip: str) -> None:
    graph = heads(chip, readout=Readout(gain=2.0, leak=0.3))
    report = nrf.conform(graph, chip, [frames(1, steps=40)], runtimes=["builtin"])
    assert report.verdict == "pass", report.failures
    nodes = {entry.node for entry in report.measured if entry.rung == "L3" and entry.runtime == "builtin"}
    assert nodes == {f"coordinates of {name}" for name in ("a", "c", "t2 0")}


@pytest.mark.parametrize("chip", chip_names())
@pytest.mark.parametrize("read", [{"classes": 0}, {"classes": 3}, {"readout": Readout(gain=2.0, leak=0.3)}])
def test_a_recording_in_pieces_has_the_answers_of_every_output(
    chip: str, read: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nrf.api.running.PIECE", 7 * np.prod(SHAPE))
    program, clip = nrf.lower(heads(chip, **read), chip, calibrate=[frames(1)]), frames(2)
    whole, short = nrf.run(program, clip), nrf.record(program, clip, tmp_path / "pieces.npz")
    pieces = Recording.load(tmp_path / "pieces.npz")
    assert len(whole.answers) == 3 and whole.decisions == pieces.decisions == short.recording.decisions
    for name, answer in whole.answers.items():
        assert np.allclose(pieces.answers[name], answer, rtol=1e-5), name


@pytest.mark.parametrize("chip", chip_names())
def test_a_difference_names_the_output_that_it_is_in(chip: str) -> None:
    """What reads `c` changes; the other two heads, and what they answer, stay."""
    graph, other = (heads(chip, classes=0) for _ in range(2))
    other.nodes["conv c"].weight[:] = np.roll(graph.nodes["conv c"].weight, 1, axis=0)
    programs = [nrf.lower(each, chip, calibrate=[frames(1)]) for each in (graph, other)]
    runs = [nrf.run(program, frames(2)) for program in programs]
    assert {each.where for each in nrf.diff(graph, other)} == {"conv c"}
    changed = nrf.diff(*runs)
    assert {each.where for each in changed if each.what in ("spikes", "scores", "class")} == {"c"}
    classes = [(each.a, each.b) for each in changed if each.what == "class"]
    decided = tuple(str(run.decisions["c"]) for run in runs)
    assert classes == ([decided] if decided[0] != decided[1] else [])
    dropped = nrf.diff(graph, built(5, [("a", []), ("c", [])], graph.contract))
    assert {"out 2", "t2 0"} <= {each.where for each in dropped if each.what == "node"}


def test_what_does_not_fit_every_output_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'out 1' has shape \(5,\)"):
        built(0, [("a", []), ("b", ["Flatten", "Affine"])], CHIP["loihi2"].with_(readout=Readout(gain=1.0)))
    with pytest.raises(InputError, match="labels for 2 outputs, the model has more"):
        nrf.conform(
            heads("speck2f", classes=0), "speck2f", [frames(1)], runtimes=["builtin"], labels=[(0, 1)]
        )
    program: Any = nrf.lower(heads("loihi2"), "loihi2", calibrate=[frames(1)])
    replace(program, outputs=("a", "nobody")).save(tmp_path / "broken.loihi2")
    with pytest.raises(InputError, match="output 'nobody' is none of its populations"):
        nrf.load(tmp_path / "broken.loihi2")
