"""Configurations: every preset survives a round trip, and every mistake is named."""

import tomllib
from pathlib import Path

import pytest

from nrf.config import Config, from_dict, read_config, to_toml
from nrf.errors import InputError
from nrf.presets import load_preset, preset_names


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_written_as_toml_reads_back_equal(name):
    config = load_preset(name)
    assert config.name == name
    assert from_dict(tomllib.loads(to_toml(config))) == config


def test_the_paper_preset_is_the_papers():
    network = load_preset("paper").network
    assert network.input == (2, 300, 300) and network.channels == 4 and network.c == pytest.approx(2**0.5)
    assert [(block.features, block.kernel) for block in network.blocks] == [(144, 9)] * 3
    assert [block.space for block in network.blocks] == ["rf", "rf", "uniform"]
    assert network.blocks[2].time == "fastest" and load_preset("paper").training.rate == 5e-4


def table(**changes: object) -> dict[str, object]:
    return load_preset("tiny").to_dict() | changes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(nettwork={}), "key 'nettwork' is not known; known are name, network"),
        (lambda t: t.pop("name"), "key 'name' is missing"),
        (
            lambda t: t["network"].update(neuron="lyf"),
            "network: neuron: is 'lyf', expected one of lif, if, li, relu",
        ),
        (lambda t: t["network"].update(channels=2.5), "network: channels: is 2.5, expected int"),
        (lambda t: t["network"].update(channels=True), "network: channels: is True, expected int"),
        (lambda t: t["network"].update(input=[2, 32]), "network: input: expected 3 values, found 2"),
        (
            lambda t: t["network"].update(input=[2, 64, 64]),
            r"network.input is \(2, 64, 64\), the clips are 32x32",
        ),
        (lambda t: t["network"].update(dt=0.002), "network.dt is 0.002, the clips have 0.001"),
        (lambda t: t["network"].update(shapes=2), "network.shapes is 2, the clips have 3"),
        (
            lambda t: t["network"]["blocks"][0].update(kernel=4),
            "block 1: kernel is 4, expected an odd number",
        ),
        (lambda t: t["network"].update(blocks=7), "network: blocks: expected a list, found 7"),
        (lambda t: t["network"].update(neuron="if", leak=[0.1] * 3), "leak has 3 values, expected 1 or 2"),
        (lambda t: t.update(seed=-1), "seed is -1, expected 0 or more"),
        (lambda t: t["training"].update(warm_up=30), "training.warm_up is 30, a clip has 30 steps"),
        (lambda t: t["training"].update(steps=0), "training: steps is 0, expected at least 1"),
        (lambda t: t.update(training=3), "training: expected a table, found 3"),
    ],
)
def test_a_mistake_is_named_with_its_place(change, message):
    wrong = table()
    change(wrong)
    with pytest.raises(InputError, match=f"^my.toml: .*{message}"):
        from_dict(wrong, "my.toml")


def test_an_unreadable_file_and_an_unknown_preset_are_named(tmp_path: Path):
    (tmp_path / "a.toml").write_text("name = ")
    with pytest.raises(InputError, match=r"a.toml: not a readable TOML file"):
        read_config(tmp_path / "a.toml")
    with pytest.raises(InputError, match=r"b.toml: not a readable TOML file"):
        read_config(tmp_path / "b.toml")
    with pytest.raises(InputError, match="preset 'huge' is not known; choose from demo, loihi2"):
        load_preset("huge")


def test_whole_numbers_count_as_numbers():
    changed = table()
    changed["network"]["alpha"] = 5
    assert isinstance(from_dict(changed), Config)
