"""A program file is a stranger's file: what it says is checked before anything is computed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from nrf.backends.border.program import save_program
from nrf.backends.speck.program import PooledSource, Population, SpeckProgram, check_program, load
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.model.readout import Readout

from .programs import BITS, programs


def program(**changes: Any) -> SpeckProgram:
    """Two populations in a row; `changes` are made to the second."""
    first = Population(
        node="a", core=3, sources=(PooledSource("input", 2),), input_shape=(2, 4, 4), shape=(2, 4, 4),
        node_shape=(2, 4, 4), stride=(1, 1), padding=(1, 1), threshold=100, floor=-100, zero_reset=False,
        weight=np.ones((2, 2, 3, 3), np.int8), bias=np.zeros(2, np.int8), volts=np.ones(2),
    )  # fmt: skip
    second = replace(first, node="b", core=0, sources=(PooledSource("a"),))
    populations = (first, replace(second, **changes))
    return SpeckProgram("speck2f", Contract(dt=1e-3), BITS, (2, 8, 8), populations, (populations[1].node,))


@settings(max_examples=20, deadline=None)
@given(program=programs())
def test_a_program_survives_its_file(program: SpeckProgram, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("program") / "p.speck2f"
    program.save(path)
    again = load(path)
    assert again.checksum == program.checksum
    assert [replace(each, weight=0, bias=0, volts=0) for each in again.populations] == [
        replace(each, weight=0, bias=0, volts=0) for each in program.populations
    ]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"node": "a"}, "has the same name"),
    ({"node": "input"}, "has the same name"),
    ({"sources": ()}, "no source"),
    ({"sources": (PooledSource("c"),)}, "'c' does not come before"),
    ({"sources": (PooledSource("b"),)}, "'b' does not come before"),
    ({"sources": (PooledSource("a", 0),)}, "pooled by 0"),
    ({"sources": (PooledSource("a", 2),)}, "does not fit 'a' pooled by 2"),
    ({"input_shape": (3, 4, 4)}, "does not fit 'a'"),
    ({"input_shape": (2, 0, 4)}, "does not fit 'a'"),
    ({"shape": (2, 4, 5), "node_shape": (2, 4, 5)}, r"convolution gives \(2, 4, 4\)"),
    ({"node_shape": (2, 16)}, r"as \(2, 16\)"),
    ({"node_shape": (2, 4, 4, 2)}, "is not supported on Speck"),
    ({"stride": (0, 1)}, "stride"),
    ({"padding": (-1, 1)}, "padding"),
    ({"weight": np.ones((2, 2, 3), np.int8)}, "weights have shape"),
    ({"weight": np.ones((2, 2, 3, 5), np.int8)}, "weights have shape"),
    ({"weight": np.ones((2, 1, 3, 3), np.int8)}, "weights have shape"),
    ({"weight": np.ones((2, 2, 3, 3), np.int16)}, "int16, expected int8"),
    ({"bias": np.zeros(3, np.int8)}, "one finite number per channel"),
    ({"volts": np.array([1.0, np.nan])}, "one finite number per channel"),
    ({"threshold": 0}, "threshold 0"),
    ({"threshold": 2**15}, "threshold 32768"),
    ({"floor": 1}, "floor 1"),
    ({"floor": -(2**15) - 1}, "floor -32769"),
    ({"core": 3}, r"on the cores \[3, 3\]"),
    ({"core": -1}, r"on the cores \[3, -1\]"),
    ({"threshold": "high"}, "not a program for this chip"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_what_types_cannot_say_is_checked_too(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    check_program(program())
    save_program(tmp_path / "p", program(**changes))
    with pytest.raises(InputError, match=rf"p: .*{message}"):
        load(tmp_path / "p")


def test_numbers_are_held_to_the_widths_that_the_program_names(tmp_path: Path) -> None:
    wide = program(weight=np.full((2, 2, 3, 3), 8, np.int8))
    check_program(wide)
    narrow = replace(wide, bits=msgspec.structs.replace(BITS, weight=4))
    with pytest.raises(InputError, match="node 'b': weight is not within -8 to 7"):
        check_program(narrow)


def test_ends_are_checked() -> None:
    with pytest.raises(InputError, match="output 'input' is none"):
        check_program(replace(program(), outputs=("input",)))
    with pytest.raises(InputError, match="0 populations"):
        check_program(replace(program(), populations=()))
    flat = program(weight=np.ones((2, 2, 4, 4), np.int8), padding=(0, 0), shape=(2, 1, 1), node_shape=(2,))
    check_program(flat)
    with pytest.raises(InputError, match="'b' is no map"):
        check_program(replace(flat, contract=Contract(dt=1e-3, readout=Readout())))


def test_the_checksum_covers_what_is_computed_and_nothing_else() -> None:
    usual = program()
    assert usual.checksum == program().checksum
    assert usual.checksum == replace(usual, lowered=replace(usual.lowered, calibration="others")).checksum
    assert usual.checksum != program(threshold=101).checksum
    assert usual.checksum != replace(usual, bits=msgspec.structs.replace(BITS, state=15)).checksum


def test_only_populations_of_the_program_are_early(tmp_path: Path) -> None:
    for early in ({"nobody": 1}, {"a": -1}):
        save_program(tmp_path / "p", replace(program(), early=early))
        with pytest.raises(InputError, match="steps early; lower again"):
            load(tmp_path / "p")
