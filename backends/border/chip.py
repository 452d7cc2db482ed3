"""A chip as data: `hw_configs/<name>.toml` read into a validated model."""

import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from nrf.errors import InputError

Status = Literal["published", "measured", "advisory"]


@dataclass(frozen=True)
class Limit:
    """One figure of a chip, with where it comes from."""

    value: Any
    source: str
    status: Status


@dataclass(frozen=True)
class Target:
    """A chip: which backend lowers for it, its limits, and the tolerances of the conformance ladder."""

    name: str
    backend: str  # folder in backends/
    title: str
    limits: dict[str, Limit]  # "cores.count" -> Limit
    tolerances: dict[str, dict[str, float]]  # "L2" -> {"f1": 0.98}

    def __getitem__(self, key: str) -> Any:
        """The value of a limit: `target["cores.count"]`."""
        return self.limit(key).value

    def limit(self, key: str) -> Limit:
        """A limit with its source."""
        if key not in self.limits:
            raise InputError(
                f"target '{self.name}': no limit '{key}' in its TOML file; add it with value, source, status"
            )
        return self.limits[key]


def target_names() -> list[str]:
    """Names of all chips that ship with the package."""
    folder = resources.files("nrf.hw_configs")
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def load_target(name: str) -> Target:
    """Read a chip by name, or from a path that ends in .toml.

    >>> load_target("loihi2")["cores.count"]
    128
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise InputError(f"{name}: no such file")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{name}: cannot be read as text: {error}") from error
        return parse_target(text, where=name)
    if name not in target_names():
        raise InputError(
            f"unknown target '{name}'; known: {', '.join(target_names())}, or a path to a .toml file"
        )
    entry = resources.files("nrf.hw_configs") / f"{name}.toml"
    return parse_target(entry.read_text(), where=f"{name}.toml")


def parse_target(text: str, where: str) -> Target:
    """Validate the text of a target file; errors name the file and the key."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: not valid TOML: {error}") from error
    for key in ("name", "backend", "title"):
        if not isinstance(table.get(key), str):
            raise InputError(f"{where}: key '{key}' is missing or not a string")
    tolerances = table.pop("tolerances", {})
    if not isinstance(tolerances, dict) or not all(isinstance(part, dict) for part in tolerances.values()):
        raise InputError(f"{where}: key 'tolerances' needs one table per rung, such as [tolerances.L2]")
    return Target(
        name=table.pop("name"),
        backend=table.pop("backend"),
        title=table.pop("title"),
        limits=dict(_limits(table, "", where)),
        tolerances=tolerances,
    )


def _limits(table: dict[str, Any], prefix: str, where: str) -> list[tuple[str, Limit]]:
    found = []
    for key, entry in table.items():
        path = f"{prefix}{key}"
        if not isinstance(entry, dict):
            raise InputError(f"{where}: key '{path}' needs {{ value, source, status }}, found {entry!r}")
        if "value" not in entry:
            found += _limits(entry, f"{path}.", where)
            continue
        if set(entry) != {"value", "source", "status"} or entry["status"] not in get_args(Status):
            raise InputError(
                f"{where}: key '{path}' needs value, source and status (one of {', '.join(get_args(Status))})"
            )
        found.append((path, Limit(**entry)))
    return found
