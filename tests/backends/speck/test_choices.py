"""What SynSense does not document: choices with a default, and how far an answer depends on them.

That each choice does what it says is held against the fake board, see test_board.py.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from nrf.backends.border import Recording
from nrf.backends.conformance.choices import alternatives, dependence
from nrf.backends.conformance.ladder import Clip, conform
from nrf.backends.speck import BACKEND
from nrf.backends.speck.asynchronous import CHOICES
from nrf.backends.speck.program import PooledSource
from nrf.cli import app
from nrf.errors import InputError
from nrf.export import Graph

from .graphs import SPECK, lower, one_layer
from .programs import run, single
from .random_graphs import events


def biased(bias: float) -> Graph:
    graph = one_layer(size=8, padding=1)
    graph.nodes["conv"].weight = np.random.default_rng(1).integers(-9, 30, (4, 2, 3, 3)) / 64
    graph.nodes["conv"].bias = np.full(4, bias)
    return graph


def figures(graph: Graph) -> dict[str, float]:
    """Of every choice, how far counts of the output differ."""
    clip = Clip("one", events(np.random.default_rng(0), (2, 8, 8), 30).astype(np.float32))
    report = conform(graph, SPECK, [clip], runtimes=["asynchronous"], repeats=2)
    rows = dependence(report.measured, graph.read_populations)
    assert report.verdict in ("pass", "fail"), "choices are reported, not judged"
    return {row[0]: float(row[4].removesuffix(" %")) for row in rows}


def test_conform_says_how_far_the_answer_depends_on_every_choice() -> None:
    found = figures(biased(0.25))
    asked = {f"{key}={value}" for key, value in alternatives(BACKEND.runtimes["asynchronous"])}
    assert {*found} == asked | {"another order of events"}
    assert found["tick_fires=no"] > 0
    assert found["first_event=lost"] > 0
    assert found["first_destination=last"] == 0, "it has one destination at most"


def test_without_biases_the_clock_does_not_matter() -> None:
    found = figures(biased(0.0))
    assert [found[key] for key in ("tick_fires=no", "tick_at=middle", "tick_at=end")] == [0, 0, 0]
    assert found["another order of events"] > 0


def test_jitter_is_that_of_cores_0_and_1_and_the_same_for_the_same_seed() -> None:
    program = lower(biased(0.0))
    frames = events(np.random.default_rng(0), (2, 8, 8), 30)

    def spikes(core: int, seed: int, **choices: str) -> Recording:
        first = replace(program.populations[0], core=core)
        weight = np.repeat(first.weight, 2, axis=1)
        second = replace(
            first, node="deep", core=7, sources=(PooledSource("if"),), input_shape=(4, 8, 8), weight=weight
        )
        both = replace(program, populations=(first, second), outputs=("deep",))
        return run(both, frames, "asynchronous", seed=seed, choices=choices)

    assert spikes(0, 1, jitter="yes") == spikes(0, 1, jitter="yes")
    assert spikes(0, 1, jitter="yes") != spikes(0, 1)
    assert spikes(2, 1, jitter="yes") == spikes(2, 1)


@pytest.mark.parametrize(
    ("runtime", "choices", "message"),
    [
        ("asynchronous", {"tick_on": "end"}, "unknown choice 'tick_on'; did you mean 'tick_at'"),
        ("asynchronous", {"tick_at": "never"}, "choice tick_at is 'never'; known are start, middle, end"),
        ("builtin", {"tick_at": "end"}, "runtime 'builtin' has no choices"),
    ],
)
def test_choices_that_do_not_exist_are_refused(runtime: str, choices: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(single(10, 3), np.ones((3, 1, 1, 1), int), runtime, choices=choices)


def test_the_command_takes_choices_and_the_recording_says_which(tmp_path: Path) -> None:
    program, clip, out = (tmp_path / name for name in ("model.speck2f", "clip.npz", "out.npz"))
    lower(biased(0.25)).save(program)
    np.savez(clip, frames=events(np.random.default_rng(0), (2, 8, 8)))
    command = ["run", str(program), "--input", str(clip), "--out", str(out), "--choice", "tick_at=end"]
    assert CliRunner().invoke(app, [*command, "--runtime", "asynchronous"]).exit_code == 0
    said = Recording.load(out).provenance.details["choices"]
    assert said == {key: values[0] for key, values in CHOICES.items()} | {"tick_at": "end"}
    assert CliRunner().invoke(app, command).exit_code != 0
