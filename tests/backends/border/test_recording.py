"""Recordings survive the file, whatever the nodes are called."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nrf.backends.border.program import load_program, save_program
from nrf.backends.border.recording import Provenance, Recording, Spikes
from nrf.errors import InputError

NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12)
ODD = ("lif/1", "../up", "a\\b", "header", "coordinates", "x/t", "x", "file", "ß→μ", " ", "n.npy", "con:")


def recording(names: list[str], seed: int = 0) -> Recording:
    rng = np.random.default_rng(seed)
    counts = {name: rng.integers(0, 3, (6, 2, 3)) for name in names}
    return Recording(
        steps=6,
        shapes=dict.fromkeys(names, (2, 3)),
        spikes={name: Spikes.from_dense(count) for name, count in counts.items()},
        provenance=Provenance("builtin", "simulation", "loihi2", {"nrf": "0"}, "abc", {"saturated": 3}),
        membranes={name: rng.normal(size=(6, 2, 3)) for name in names[::2]},
        answers={
            name: rng.normal(size=(6, 3, 2) if k % 2 else (4,)) for k, name in enumerate(names) if k < 2
        },
        latencies={name: k for k, name in enumerate(names)},
    )


@settings(max_examples=60)
@given(names=st.lists(NAMES | st.sampled_from(ODD), min_size=1, max_size=4, unique=True))
def test_everything_comes_back_from_the_file(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("recording") / "recording.npz"
    before = recording(names)
    before.save(path)
    after = Recording.load(path)
    assert after.nodes == before.nodes == names
    assert after.provenance == before.provenance
    assert after.answers.keys() == before.answers.keys() and len(after.answers) == min(2, len(names))
    for name in after.answers:
        np.testing.assert_array_equal(after.answers[name], before.answers[name])
    for name in names:
        np.testing.assert_array_equal(after.dense(name), before.dense(name))
        assert after.latency(name) == before.latency(name)
        first, second = before.membrane(name), after.membrane(name)
        assert (first is None) == (second is None)
        if first is not None and second is not None:
            np.testing.assert_array_equal(first, second)


def test_dense_and_sparse_are_the_same_counts() -> None:
    counts = np.random.default_rng(1).integers(0, 4, (9, 2, 3))
    spikes = Spikes.from_dense(counts)
    one = Recording(9, {"a": (2, 3)}, {"a": spikes}, Provenance("reference", "simulation"))
    np.testing.assert_array_equal(one.dense("a"), counts)
    assert one.events("a").n.sum() == counts.sum()
    assert (np.diff(one.events("a").t) >= 0).all()


def test_a_clip_without_steps_is_a_recording_too() -> None:
    assert len(Spikes.from_dense(np.zeros((0, 2, 3))).t) == 0


@dataclass(frozen=True)
class Toy:
    """A small program."""

    target: str
    weight: NDArray[Any]
    bias: NDArray[np.int32]


@settings(max_examples=200)
@given(data=st.data())
def test_a_program_with_any_byte_changed_is_refused_or_the_same(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "program.npz"
    before = Toy("loihi2", np.arange(40, dtype=np.int8), np.zeros((3, 2), np.int32))
    save_program(path, before)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        after = load_program(path, Toy, lambda program: None)
    except InputError:
        return
    assert after.target == before.target  # a byte that means nothing, such as a date in the zip
    np.testing.assert_array_equal(after.weight, before.weight)
    np.testing.assert_array_equal(after.bias, before.bias)


def test_arrays_of_another_type_are_refused_and_those_of_any_type_are_not(tmp_path: Path) -> None:
    save_program(tmp_path / "good", Toy("x", np.zeros(3, np.int64), np.zeros(3, np.int32)))
    assert load_program(tmp_path / "good", Toy, lambda program: None).weight.dtype == np.int64
    save_program(tmp_path / "bad", Toy("x", np.zeros(3), np.zeros(3)))
    with pytest.raises(InputError, match="array 1 holds float64, expected int32"):
        load_program(tmp_path / "bad", Toy, lambda program: None)


def test_an_unknown_node_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match="recording has no node 'c'; it has a, b"):
        recording(["a", "b"]).dense("c")


def test_a_node_without_spikes_says_so() -> None:
    one = Recording(2, {"li": (3,)}, {}, Provenance("reference", "simulation"))
    with pytest.raises(InputError, match="node 'li' does not spike"):
        one.dense("li")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 not a zip"])
def test_a_file_that_is_no_recording_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.npz: not a recording of nrf"):
        Recording.load(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", frames=np.zeros(3))
    with pytest.raises(InputError, match=r"y\.npz: not a recording of nrf"):
        Recording.load(tmp_path / "y.npz")
    with pytest.raises(InputError, match=r"z\.npz: no such file"):
        Recording.load(tmp_path / "z.npz")
