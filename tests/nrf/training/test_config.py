"""Configurations: every preset survives a round trip, and every mistake is named."""

import json
import re
import tomllib
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from msgspec import inspect, structs

from nrf.config import Section, from_table, to_table, to_toml
from nrf.errors import InputError
from nrf.training.config import Config, read_config
from nrf.training.presets import load_preset, preset_names


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_written_as_toml_reads_back_equal(name):
    config = load_preset(name)
    assert config.name == name
    assert from_table(Config, tomllib.loads(to_toml(config)), "again") == config


def test_the_paper_preset_is_the_papers():
    network = load_preset("paper").network
    assert network.input == (2, 300, 300) and network.channels == 4 and network.c == pytest.approx(2**0.5)
    assert [(block.features, block.kernel) for block in network.blocks] == [(144, 9)] * 3
    assert [block.space for block in network.blocks] == ["rf", "rf", "uniform"]
    assert network.blocks[2].time == "fastest" and load_preset("paper").training.rate == 5e-4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.update(nettwork={}),
            r"key 'nettwork' is not known; did you mean 'network'\? known are name, network",
        ),
        (lambda t: t.pop("name"), "key 'name' is missing"),
        (
            lambda t: t["network"].update(neuron="lyf"),
            "network.neuron is 'lyf', expected one of if, li, lif, relu",
        ),
        (lambda t: t["network"].update(channels=2.5), "network.channels is 2.5, expected int"),
        (lambda t: t["network"].update(channels=True), "network.channels is True, expected int"),
        (
            lambda t: t["network"].update(input=[2, 32]),
            r"network.input is \[2, 32\], expected list of length 3",
        ),
        (
            lambda t: t["network"].update(input=[2, 64, 64]),
            r"network.input is \(2, 64, 64\), the clips have \(2, 32, 32\)",
        ),
        (lambda t: t["network"].update(dt=0.002), "network.dt is 0.002, the clips have 0.001"),
        (lambda t: t["network"].update(shapes=2), "network.shapes is 2, the clips have 3"),
        (
            lambda t: t["network"]["blocks"][0].update(kernel=4),
            r"network.blocks\[0\].kernel is 4, expected an odd number",
        ),
        (
            lambda t: t["network"]["output"].update(kernel=4),
            "network.output.kernel is 4, expected an odd",
        ),
        (
            lambda t: t["network"]["blocks"][0].update(kernel=257),
            r"network.blocks\[0\].kernel is 257, expected int <= 255",
        ),
        (lambda t: t["network"].update(blocks=7), "network.blocks is 7, expected list"),
        (
            lambda t: t["network"].update(neuron="if", leak=[0.1] * 3),
            "network.leak has 3 values, expected 1 or 2",
        ),
        (lambda t: t.update(seed=-1), "seed is -1, expected int >= 0"),
        (lambda t: t["training"].update(warm_up=30), "training.warm_up is 30, a clip has 30 steps"),
        (lambda t: t["training"].update(steps=0), "training.steps is 0, expected int >= 1"),
        (lambda t: t["network"].update(input=[3, 32, 32]), r"network.input is \(3, 32, 32\), the clips have"),
        (lambda t: t["network"].update(blocks=[]), r"network.blocks is \[\], expected list of length >= 1"),
        (
            lambda t: t["network"]["blocks"][1].update(pool=64),
            r"network.blocks\[1\].pool is 64, the map before it has only 16x16 cells",
        ),
        (
            lambda t: t["network"]["output"].update(pool=9),
            "network.output.pool is 9, the map before it has only 8x8 cells",
        ),
        (
            lambda t: t["network"]["blocks"][0].update(kernel=1),
            r"network.blocks\[0\].kernel is 1, expected at least 3 with space = 'rf'",
        ),
        (
            lambda t: t["training"].update(firing_range=[0.2, 0.1]),
            r"training.firing_range is \(0.2, 0.1\), expected the smaller one first",
        ),
        (
            lambda t: t["training"]["pretrain"].update(firing_range=[0.2, 0.1]),
            r"training.pretrain.firing_range is \(0.2, 0.1\), expected the smaller one first",
        ),
        (lambda t: t["training"].update(rate=10**400), "training.rate is .*, expected a finite number"),
        (lambda t: t["data"]["shapes"].update(line=nan), "data.shapes.line is nan, expected float >= 0"),
        (lambda t: t["data"]["shapes"].update(scales=[60]), "data.shapes.scales reach 60.0: .* does not fit"),
        (lambda t: t.update(training=3), "training is 3, expected table"),
    ],
)
def test_a_mistake_is_named_with_its_whole_key(change, message):
    wrong = to_table(load_preset("tiny"))
    change(wrong)
    with pytest.raises(InputError, match=f"^my.toml: {message}"):
        from_table(Config, wrong, "my.toml")


def numbers(section: Section, key: str = "") -> Iterator[tuple[str, inspect.IntType | inspect.FloatType]]:
    """Every number that a configuration holds: its key, and what msgspec knows about it."""
    for field in structs.fields(section):
        value, kind = getattr(section, field.name), inspect.type_info(field.type)
        for index, item in enumerate(value if isinstance(value, tuple) else ()):
            if isinstance(item, Section):
                yield from numbers(item, f"{key}{field.name}[{index}].")
        if isinstance(value, Section):
            yield from numbers(value, f"{key}{field.name}.")
        items = getattr(kind, "item_types", None) or getattr(kind, "types", None)
        kind = items[0] if items else getattr(kind, "item_type", kind)
        if isinstance(kind, inspect.IntType | inspect.FloatType):
            yield key + field.name, kind


NUMBERS = dict(numbers(load_preset("tiny")))


def with_number(key: str, number: float) -> dict[str, Any]:
    """The tiny preset with one number changed; in a list, the first."""
    changed = part = to_table(load_preset("tiny"))
    *way, last = re.findall(r"\w+", key)
    for step in way:
        part = part[int(step)] if step.isdigit() else part[step]
    part[last] = [number, *part[last][1:]] if isinstance(part[last], list) else number
    return changed


def test_every_number_is_bounded_below():
    assert len(NUMBERS) > 40
    for key, kind in NUMBERS.items():
        assert kind.ge is not None or kind.gt is not None, key


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_outside_its_range_is_named_with_the_range(key):
    kind = NUMBERS[key]
    below = kind.gt if kind.gt is not None else kind.ge - 1
    wrong = [nan, inf, -inf, below] if isinstance(kind, inspect.FloatType) else [10**30, below]
    for number in wrong:
        with pytest.raises(InputError) as error:
            from_table(Config, with_number(key, number), "my.toml")
        text = str(error.value)
        assert text.startswith(f"my.toml: {key}") and ", expected " in text and "\n" not in text


def test_an_unreadable_file_and_an_unknown_preset_are_named(tmp_path: Path):
    (tmp_path / "a.toml").write_text("name = ")
    with pytest.raises(InputError, match=r"a.toml: not a readable TOML file"):
        read_config(tmp_path / "a.toml")
    with pytest.raises(InputError, match="preset 'huge' is not known; known are demo, loihi2"):
        load_preset("huge")


def test_whole_numbers_count_as_numbers():
    changed = to_table(load_preset("tiny"))
    changed["network"]["alpha"] = 5
    alpha = from_table(Config, changed, "my.toml").network.alpha
    assert alpha == 5.0 and isinstance(alpha, float)


def test_the_configuration_of_a_checkpoint_of_version_1_is_read():
    """As the first release wrote it: JSON with lists, and None where TOML has no key."""
    for name in ("speck2f", "tiny"):
        text = json.dumps(to_table(load_preset(name)))
        assert '"v_min": null' in text or '"v_min": -1.0, ' in text
        assert from_table(Config, json.loads(text), "old") == load_preset(name)
