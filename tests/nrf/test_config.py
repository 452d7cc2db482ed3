"""Configuration sections: checked however they come about, and every mistake is named with its whole key."""

import tomllib
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from msgspec import Meta, field
from msgspec.structs import replace

from nrf.config import ConfigError, Section, differences, from_table, read_toml, to_table, to_toml
from nrf.errors import InputError

T = TypeVar("T")


class Limit(Section, Generic[T], frozen=True):
    value: T
    source: str = ""


class Block(Section, frozen=True):
    pool: Annotated[int, Meta(ge=1, le=8)] = 1
    kind: Literal["avg", "sum"] = "avg"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool == 7:
            raise ConfigError("pool is 7, expected a power of two")


class Net(Section, frozen=True):
    blocks: Annotated[tuple[Block, ...], Meta(min_length=1)]
    rates: tuple[Annotated[float, Meta(gt=0)], float] = (1.0, 2.0)
    floor: float | None = None
    cores: Limit[int] = Limit(3)
    levels: dict[str, float] = field(default_factory=dict)


GOOD: dict[str, Any] = {"blocks": [{"pool": 2}, {}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": [{"pool": 9}]}, "blocks[0].pool is 9, expected int <= 8"),
        ({"blocks": [{}, {"pool": 7}]}, "blocks[1].pool is 7, expected a power of two"),
        ({"blocks": [{"pool": True}]}, "blocks[0].pool is True, expected int"),
        ({"blocks": [{"pool": 10**30}]}, "expected int <= 8"),
        (
            {"blocks": [{"pol": 1}]},
            "key 'blocks[0].pol' is not known; did you mean 'pool'? known are pool, kind",
        ),
        ({"blocks": [{"kind": "max"}]}, "blocks[0].kind is 'max', expected one of avg, sum"),
        ({"blocks": []}, "blocks is [], expected list of length >= 1"),
        ({"blocks": 3}, "blocks is 3, expected list"),
        ({"blocks": [3]}, "blocks[0] is 3, expected table"),
        ({"rates": [1.0]}, "rates is [1.0], expected list of length 2"),
        ({"rates": [0, 1]}, "rates[0] is 0, expected float > 0.0"),
        ({"rates": [1, nan]}, "rates is (1.0, nan), expected finite numbers"),
        ({"rates": [inf, 1]}, "rates is (inf, 1.0), expected finite numbers"),
        ({"rates": [10**400, 1]}, "expected a finite number"),
        ({"floor": "low"}, "floor is 'low', expected float | null"),
        ({"cores": {"value": "many"}}, "cores.value is 'many', expected int"),
        ({"cores": {"source": "a"}}, "key 'cores.value' is missing"),
        ({"levels": {"a": -inf}}, "levels is {'a': -inf}, expected finite numbers"),
    ],
)
def test_a_mistake_in_a_table_is_named_with_file_and_whole_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        from_table(Net, GOOD | change, "my.toml")
    assert str(error.value).startswith("my.toml: ") and str(error.value).endswith(message)
    assert "\n" not in str(error.value)


def test_what_is_no_table_at_all_is_refused() -> None:
    with pytest.raises(InputError, match=r"^my.toml: is 3, expected table$"):
        from_table(Net, 3, "my.toml")


@pytest.mark.parametrize("wrong", [0, 7, 2.0, "2", None])
def test_values_are_checked_when_built_and_when_replaced_in_python(wrong: Any) -> None:
    for make in (lambda: Block(pool=wrong), lambda: replace(Block(), pool=wrong)):
        with pytest.raises(InputError, match=r"^pool is "):
            make()


def test_whole_numbers_become_floats_in_python_and_from_a_table() -> None:
    built, read = Net((Block(),), rates=(3, 4)), from_table(Net, {"blocks": [{}], "rates": [3, 4]}, "a")
    assert built == read and [type(rate) for rate in built.rates] == [float, float]


def test_a_section_reads_back_equal_from_its_table_and_its_toml() -> None:
    for net in (
        from_table(Net, GOOD, "a"),
        Net((Block(3, "sum"),), (0.1, 1e-300), -1.5, levels={"a": 1 / 3}),
    ):
        assert from_table(Net, to_table(net), "a") == net
        assert from_table(Net, tomllib.loads(to_toml(net)), "a") == net


def test_differences_go_by_whole_key() -> None:
    one = from_table(Net, GOOD, "a")
    other = replace(one, blocks=(one.blocks[0], Block(4)), floor=-1.0)
    assert differences(one, one) == {}
    assert differences(one, other) == {"blocks[1].pool": (1, 4), "floor": (None, -1.0)}


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("name = ")
    (tmp_path / "b.toml").write_bytes('name = "caf\u00e9"'.encode("latin-1"))
    (tmp_path / "d.toml").write_text("x = " + "[" * 5000)
    words = {
        "a": "not a readable TOML file",
        "b": "cannot be read: 'utf-8'",
        "c": "no such file",
        "d": "not a readable",
    }
    for name, text in words.items():
        with pytest.raises(InputError, match=rf"{name}\.toml: {text}"):
            read_toml(tmp_path / f"{name}.toml")
