"""Configuration checked where it is declared: msgspec structs, read from and written to TOML.

A class lists its keys with their types, constraints and defaults. Values are checked however an object comes
about (built, replaced, read from a file); a wrong one is named with its whole key, and with the file if there
is one. Numbers must be finite; whole numbers are taken where a float is expected.
"""

import math
import re
import reprlib
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w
from msgspec import inspect, structs

from nrf.containers import parse_toml
from nrf.errors import InputError, did_you_mean
from nrf.files import read_text

S = TypeVar("S", bound="Section")


class ConfigError(InputError, ValueError):
    """A value that a key cannot have; the text begins with the key. It is a ValueError so that msgspec adds
    the path to it.
    """


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a configuration. Subclasses declare the keys; what one field's constraint cannot say is
    checked in their own `__post_init__`, after this one, with `ConfigError`.

    >>> from typing import Annotated
    >>> class Pooling(Section, frozen=True):
    ...     size: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2
    ...     scale: float = 1.0
    >>> Pooling(scale=3)
    Pooling(size=2, scale=3.0)
    >>> Pooling(size=0)
    Traceback (most recent call last):
    nrf.config.ConfigError: size is 0, expected int >= 1
    """

    def __post_init__(self) -> None:
        for field in structs.fields(self):
            given = getattr(self, field.name)
            try:
                value = msgspec.convert(given, field.type)
            except msgspec.ValidationError as error:
                raise ConfigError(_explain(error, given, field.type, field.encode_name)) from None
            if not all(math.isfinite(leaf) for _, leaf in _leaves(value) if isinstance(leaf, float)):
                raise ConfigError(f"{field.encode_name} is {given!r}, expected finite numbers")
            structs.force_setattr(self, field.name, value)  # 3 has become 3.0


def from_table(cls: type[S], table: Any, where: str) -> S:
    """A section from plain dictionaries and lists; `where`, usually a file, begins every error.

    >>> class Pooling(Section, frozen=True):
    ...     size: int = 2
    >>> from_table(Pooling, {"sise": 1}, "my.toml")
    Traceback (most recent call last):
    nrf.errors.InputError: my.toml: key 'sise' is not known; did you mean 'size'? known are size
    """
    try:
        return msgspec.convert(table, cls)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_explain(error, table, cls)}") from error


def to_table(section: Section) -> dict[str, Any]:
    """Plain dictionaries and lists, which `from_table` reads back to an equal section."""
    table: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(section))
    return table


def read_toml(path: str | Path | Traversable) -> dict[str, Any]:
    """The tables of a TOML file, for `from_table`."""
    text = read_text(path) if isinstance(path, str | Path) else path.read_text(encoding="utf-8")
    return parse_toml_of(text, str(path))


def parse_toml_of(text: str, where: str) -> dict[str, Any]:
    """The tables of a TOML text; `where` begins the error if it is none."""
    try:
        return parse_toml(text)
    except ValueError as error:
        raise InputError(f"{where}: not a readable TOML file ({error})") from error


def to_toml(section: Section) -> str:
    """The text of a TOML file that reads back to an equal section. Keys that are None are left out."""
    return tomli_w.dumps(_without_none(to_table(section)))


def differences(before: Section, now: Section) -> dict[str, tuple[Any, Any]]:
    """Values before and now by whole key, such as `network.blocks[0].pool`, where they differ."""
    old, new = dict(_leaves(to_table(before))), dict(_leaves(to_table(now)))
    return {key: (old.get(key), new.get(key)) for key in old | new if old.get(key) != new.get(key)}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no table or list, by its whole key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{key}[{index}]")
    else:
        yield key, value


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list) else value


def _explain(error: msgspec.ValidationError, given: Any, kind: Any, name: str = "") -> str:
    """What is wrong with a value `given` for the type `kind`, as `<key> is <value>, expected <type>`."""
    text, _, path = str(error).partition(" - at `$")
    path = path.removesuffix("`")
    key = (name + path).removeprefix(".")
    if isinstance(error.__cause__, ConfigError):
        return f"{key}.{error.__cause__}" if key else str(error.__cause__)
    value, node = _follow(path, given, inspect.type_info(kind))
    if quoted := re.match("Object .* field `(.*)`", text):
        full = f"{key}.{quoted[1]}" if key else quoted[1]
        if "missing" in text:
            return f"key '{full}' is missing"
        known = [field.encode_name for field in getattr(node, "fields", ())]
        return f"key '{full}' is not known; {did_you_mean(quoted[1], known)}"
    wanted = text.partition(", got")[0].replace("`", "").replace("array", "list").replace("object", "table")
    if "enum" in text:
        wanted = f"expected one of {', '.join(map(str, getattr(node, 'values', ())))}"
    elif "out of range" in text:
        wanted = "expected a finite number"
    return f"{key} is {reprlib.repr(value)}, {wanted[0].lower()}{wanted[1:]}".removeprefix(" ")


def _follow(path: str, value: Any, node: Any) -> tuple[Any, Any]:
    """The value at a path such as `.network.blocks[0]`, and msgspec's description of what belongs there."""
    for name, index in re.findall(r"\.([^.[\]]+)|\[(\d+|\.\.\.)\]", path):
        if index == "...":  # some value of a table, msgspec does not say which
            break
        options = node.types if isinstance(node, inspect.UnionType) else (node,)
        node = next((inner for option in options if (inner := _child(option, name, index))), node)
        value = value[name] if name else value[int(index)]
    return value, node


def _child(node: Any, name: str, index: str) -> Any:
    match node:
        case inspect.StructType():
            return next((field.type for field in node.fields if field.encode_name == name), None)
        case inspect.TupleType():
            return node.item_types[int(index)]
        case _:
            return getattr(node, "item_type", None)
