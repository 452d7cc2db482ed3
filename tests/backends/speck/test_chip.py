"""The chip as data: what its TOML says is typed, checked, and what all arithmetic goes by."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from nrf.api.training import for_chip
from nrf.backends import reference
from nrf.backends.border import load_chip
from nrf.backends.speck.check import check
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.grid import to_grid
from nrf.backends.speck.program import load
from nrf.errors import InputError
from nrf.export import Graph, from_checkpoint
from nrf.findings import errors
from nrf.model.config import BitsConfig
from nrf.training.loop import train
from nrf.training.presets import load_preset

from .graphs import CHIP, lower, one_layer
from .programs import run

TOML = (files("nrf.hw_configs") / "speck2f.toml").read_text()


def chip(folder: Path, changes: dict[str, str]) -> Speck:
    """The chip of a copy of the TOML with other values for some keys."""
    text = TOML
    for key, value in changes.items():
        text, count = re.subn(
            rf"^{key} = {{ value = [^,\]]+", f"{key} = {{ value = {value}", text, flags=re.M
        )
        assert count == 1, key
    path = folder / "chip.toml"
    path.write_text(text)
    read = load_chip(str(path))
    assert isinstance(read, Speck)
    return read


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("weight", "9", r"bits.weight is 9, expected int <= 8"),
        ("weight", "1", r"bits.weight is 1, expected int >= 2"),
        ("state", "17", r"bits.state is 17, expected int <= 16"),
        ("count", "8", r"cores.kernel_words has 9 entries, expected 8 \(count\)"),
        ("max_side", '"wide"', r"kernel.max_side is 'wide', expected int"),
    ],
)
def test_a_wrong_figure_is_refused_with_file_and_key(
    key: str, value: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"chip.toml: {message}"):
        chip(tmp_path, {key: value})


def stranger(weight: float = 1.0) -> Graph:
    """One layer of random weights, off every grid."""
    graph = one_layer(size=12, features=4, padding=1, contract=CHIP.with_(dt=1.0))
    rng = np.random.default_rng(0)
    graph.nodes["conv"].weight = rng.normal(0.1, 0.3, (4, 2, 3, 3)) * weight
    return graph


def clip(seed: int) -> Any:
    return (np.random.default_rng(seed).random((60, 2, 12, 12)) < 0.05).astype(np.float32)


def test_a_chip_of_4_bit_weights_is_checked_lowered_and_simulated_at_4_bits(tmp_path: Path) -> None:
    narrow = chip(tmp_path, {"weight": "4"})
    assert not errors(check(one_layer(weight=7.0), narrow))
    (finding,) = errors(check(one_layer(weight=7.5), narrow))
    assert finding.rule == "weights_fit"
    assert finding.message == "largest 4-bit weight in thresholds: 7.5, a core has at most 7"

    graph, frames = stranger(), clip(1)
    program = lower(graph, [frames], narrow)
    weight = program.populations[0].weight
    assert (weight.min(), weight.max()) in {(-8, 7), (-8, 6), (-7, 7), (-6, 7)}, "all 4 bits are used"
    program.save(tmp_path / "program")
    (tmp_path / "chip.toml").unlink()
    again = load(tmp_path / "program")  # needs the program alone
    assert again.bits.weight == 4
    wanted = reference.run(graph, frames)
    found = run(again, frames, teacher=wanted)
    (loss,) = program.lowered.losses
    assert loss.f1 is not None
    common = np.minimum(wanted.dense("if"), found.dense("if")).sum()
    score = 2 * common / (wanted.dense("if").sum() + found.dense("if").sum())
    assert score == pytest.approx(loss.f1, abs=1e-12)
    assert loss.f1 < lower(graph, [frames], chip(tmp_path, {})).lowered.losses[0].f1 - 0.01, "than at 8 bits"


def test_the_grid_of_a_4_bit_chip_has_4_bits(tmp_path: Path) -> None:
    narrow = chip(tmp_path, {"weight": "4"})
    graph = to_grid(stranger(), narrow)
    program, frames = lower(graph, chip=narrow), clip(2)
    assert program.lowered.losses[0].rounding == "exact"
    assert abs(program.populations[0].weight).max() <= 8
    wanted = reference.run(graph, frames)
    assert wanted.events("if").count > 50
    assert wanted.events("if") == run(program, frames).events("if")


def test_training_for_a_4_bit_chip_is_at_4_bits_and_lowers_without_rounding(tmp_path: Path) -> None:
    preset = load_preset("speck2f")
    states = chip(tmp_path, {"weight": "4", "state": "12"})
    assert for_chip(preset, states).network.bits == BitsConfig(weight=4, bias=8, finest=6)
    narrow = chip(tmp_path, {"weight": "4"})
    shapes = structs.replace(preset.data.shapes, resolution=16, scales=(4.0,), steps=70)
    small = structs.replace(
        preset,
        network=structs.replace(preset.network, input=(2, 16, 16)),
        data=structs.replace(preset.data, clips=4, shapes=shapes),
        training=structs.replace(
            preset.training, steps=1, batch=2, pretrain=structs.replace(preset.training.pretrain, steps=1)
        ),
    )
    train(for_chip(small, narrow), tmp_path / "run")
    program = lower(from_checkpoint(tmp_path / "run"), chip=narrow)
    for population, loss in zip(program.populations, program.lowered.losses, strict=True):
        assert loss.rounding == "exact"
        assert 4 <= abs(population.weight.astype(int)).max() <= 8, "all 4 bits are used"


def test_training_that_rounds_nothing_has_no_target() -> None:
    with pytest.raises(InputError, match=r"demo: network.integers is false.*nrf export --grid"):
        for_chip(load_preset("demo"), "speck2f")


@pytest.mark.needs_vendor("sinabs")
def test_sinabs_runs_the_integers_of_a_4_bit_chip(tmp_path: Path) -> None:
    program, frames = lower(stranger(), chip=chip(tmp_path, {"weight": "4"})), clip(3)
    assert run(program, frames).events("if") == run(program, frames, "sinabs").events("if")


def test_narrow_states_bound_thresholds_and_saturate_early(tmp_path: Path) -> None:
    narrow = chip(tmp_path, {"state": "8"})
    small = stranger(0.001)
    assert not errors(check(small, load_chip("speck2f")))  # type: ignore[arg-type]
    assert any(finding.rule == "states_fit" for finding in errors(check(small, narrow)))
    program = lower(stranger(0.1), chip=narrow)
    assert program.populations[0].threshold <= 127
    assert program.populations[0].floor >= -128
    busy = np.full((20, 2, 12, 12), 40)
    for runtime in ("builtin", "asynchronous"):
        wide, tight = (
            run(lower(stranger(0.1), chip=which), busy, runtime).provenance.counters["saturated"]
            for which in (chip(tmp_path, {}), narrow)
        )
        assert tight > wide, runtime
