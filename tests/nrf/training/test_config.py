"""Configurations: every preset survives a round trip, and every mistake is named."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from math import inf, nan
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from nrf.errors import InputError
from nrf.events import synthetic as shapes
from nrf.training.config import RANGES, Config, from_dict, read_config, to_toml
from nrf.training.presets import load_preset, preset_names
from nrf.training.ranges import LARGEST, Range


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
            r"network.input is \(2, 64, 64\), the clips are \(2, 32, 32\)",
        ),
        (lambda t: t["network"].update(dt=0.002), "network.dt is 0.002, the clips have 0.001"),
        (lambda t: t["network"].update(shapes=2), "network.shapes is 2, the clips have 3"),
        (
            lambda t: t["network"]["blocks"][0].update(kernel=4),
            r"network.blocks\[0\].kernel is 4, expected an odd number and at least 1 and at most 255",
        ),
        (lambda t: t["network"].update(blocks=7), "network: blocks: expected a list, found 7"),
        (lambda t: t["network"].update(neuron="if", leak=[0.1] * 3), "leak has 3 values, expected 1 or 2"),
        (lambda t: t.update(seed=-1), "seed is -1, expected at least 0 and at most"),
        (lambda t: t["training"].update(warm_up=30), "training.warm_up is 30, a clip has 30 steps"),
        (lambda t: t["training"].update(steps=0), "training.steps is 0, expected at least 1"),
        (lambda t: t["network"].update(input=[3, 32, 32]), r"network.input is \(3, 32, 32\), the clips are"),
        (lambda t: t["network"].update(blocks=[]), "network: blocks is empty, expected at least one"),
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
        (lambda t: t["training"].update(rate=10**400), "training.rate is inf, expected more than 0"),
        (lambda t: t["data"]["shapes"].update(line=nan), "data: shapes: line is nan, expected at least 0"),
        (lambda t: t.update(training=3), "training: expected a table, found 3"),
    ],
)
def test_a_mistake_is_named_with_its_place(change, message):
    wrong = table()
    change(wrong)
    with pytest.raises(InputError, match=f"^my.toml: .*{message}"):
        from_dict(wrong, "my.toml")


def parts(config: Any, place: str = "") -> Iterator[tuple[Any, str]]:
    """Every dataclass of a configuration with the place where it is."""
    yield config, place
    for f in fields(config):
        value = getattr(config, f.name)
        for index, item in enumerate(value if isinstance(value, tuple) else (value,)):
            if is_dataclass(item):
                number = f"[{index}]" if isinstance(value, tuple) else ""
                yield from parts(item, f"{place}{f.name}{number}.")


def numbers() -> Iterator[tuple[str, Any, type]]:
    """Every number that a configuration holds: its key, the part that it belongs to, its type."""
    for part, place in parts(load_preset("tiny")):
        for name, hint in get_type_hints(type(part)).items():
            kinds = {hint, *get_args(hint)} & {int, float}
            if kinds:
                yield f"{place}{name}", part, kinds.pop()


NUMBERS = {key: (part, kind) for key, part, kind in numbers()}


def with_number(key: str, number: float) -> dict[str, Any]:
    """The tiny preset with one number changed; in a list, the first."""
    changed = table()
    part: Any = changed
    *way, last = re.findall(r"\w+", key)
    for step in way:
        part = part[int(step)] if step.isdigit() else part[step]
    part[last] = [number, *part[last][1:]] if isinstance(part[last], list) else number
    return changed


def test_every_number_has_a_range():
    for key, (part, _) in NUMBERS.items():
        ranges = shapes.RANGES if isinstance(part, shapes.ShapesConfig) else RANGES[type(part)]
        assert key.rpartition(".")[2] in ranges, key


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_outside_its_range_is_named_with_the_range(key):
    part, kind = NUMBERS[key]
    name = key.rpartition(".")[2]
    allowed = (shapes.RANGES if isinstance(part, shapes.ShapesConfig) else RANGES[type(part)])[name]
    wrong = [nan, inf, -inf] if kind is float else [10**30]
    if allowed.low > -LARGEST:
        wrong += [kind(allowed.low - 1), *([kind(allowed.low)] if allowed.above else [])]
    for number in wrong:
        with pytest.raises(InputError) as error:
            from_dict(with_number(key, number), "my.toml")
        text = str(error.value)
        # what the shapes need is checked by themselves, the rest all at once
        assert text.startswith("my.toml: ") and f"{name} is " in text and text.endswith(f"expected {allowed}")
        assert str(number) in text and "\n" not in text


@pytest.mark.parametrize(
    ("allowed", "words", "inside", "outside"),
    [
        (Range(), "a finite number", [0, -1e300, 1e300], [nan, inf, -inf, 10**400]),
        (Range(1), "at least 1", [1, 7], [0.99, nan]),
        (Range(0, 1, above=True), "more than 0 and at most 1", [1e-9, 1], [0, 1.1]),
        (Range(0, 1, below=True), "at least 0 and less than 1", [0, 0.5], [1, -1e-9]),
        (Range(1, 9, odd=True), "an odd number and at least 1 and at most 9", [1, 9], [2, -1, 11]),
    ],
)
def test_ranges_hold_what_they_say(allowed, words, inside, outside):
    assert str(allowed) == words
    assert all(number in allowed for number in inside) and not any(number in allowed for number in outside)


def test_an_unreadable_file_and_an_unknown_preset_are_named(tmp_path: Path):
    (tmp_path / "a.toml").write_text("name = ")
    with pytest.raises(InputError, match=r"a.toml: not a readable TOML file"):
        read_config(tmp_path / "a.toml")
    (tmp_path / "c.toml").write_bytes('name = "caf\u00e9"'.encode("latin-1"))
    with pytest.raises(InputError, match=r"c.toml: not a readable TOML file"):
        read_config(tmp_path / "c.toml")
    with pytest.raises(InputError, match=r"b.toml: not a readable TOML file"):
        read_config(tmp_path / "b.toml")
    with pytest.raises(InputError, match="preset 'huge' is not known; choose from demo, loihi2"):
        load_preset("huge")


def test_whole_numbers_count_as_numbers():
    changed = table()
    changed["network"]["alpha"] = 5
    assert isinstance(from_dict(changed), Config)
