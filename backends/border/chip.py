"""A chip as data: a TOML file read into a typed, validated description of that chip.

Every figure stands in the file with its source and status:

    [cores]
    count = { value = 128, source = "Loihi 2 technology brief", status = "published" }

The figures become the fields of the chip's own class (`chip.cores.count`), the sources go to `chip.origins`.
Unknown keys, wrong types and figures out of range are refused here, with file and key.
"""

import re
from typing import Annotated, Literal, TypeVar

import msgspec

from nrf.backends.border.figures import FIGURES
from nrf.config import Section, from_table, parse_toml_of
from nrf.errors import InputError

SECTION = re.compile(r"L[0-3](_on_grid|_asynchronous)?")
Tolerances = dict[str, dict[str, float]]  # "L2" -> {"f1_min": 0.98}


class Origin(Section, frozen=True):
    """Where a figure comes from."""

    source: str
    status: Literal["published", "measured", "advisory"]


Band = tuple[float, float]  # from, to


class Energy(Section, frozen=True, kw_only=True):
    """What work costs, as somebody published it; nothing is estimated from what is left out."""

    title: str = ""  # what kind of figures these are, such as "at Loihi 1's published costs"
    static_power: Band | None = None  # watts
    synaptic_operation: Band | None = None  # joules
    neuron_update: Band | None = None  # joules, of every neuron at every step
    spike: Band | None = None  # joules
    layer_seconds: Band | None = None  # of an event through one layer


class Rate(Section, frozen=True):
    """What a core can keep up with."""

    synaptic_operations: Annotated[float, msgspec.Meta(gt=0)]  # per second, of one core


class Chip(Section, frozen=True, kw_only=True):
    """What every chip has; the class of a chip adds its limits and number formats."""

    name: str
    backend: str  # entry point of the group `nrf.chips` that lowers for it
    title: str
    energy: Energy | None = None
    rate: Rate | None = None
    tolerances: Tolerances = msgspec.field(default_factory=dict)
    origins: dict[str, Origin] = msgspec.field(default_factory=dict)  # "cores.count" -> its source

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tolerances(self.tolerances, "tolerances")

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.name}', {self.title}, {len(self.origins)} figures)"


C = TypeVar("C", bound=Chip)


def check_tolerances(tolerances: Tolerances, where: str) -> None:
    """Refuse sections and figures that nothing would be held against, and what is no number."""
    for section, limits in tolerances.items():
        if not isinstance(limits, dict):
            raise InputError(f"{where}: '{section}' is {limits!r}, expected a table of figures")
        if not SECTION.fullmatch(section):
            raise InputError(
                f"{where}: unknown section '{section}'; expected L0 to L3, with _on_grid or _asynchronous"
            )
        for key, limit in limits.items():
            figure, _, side = key.rpartition("_")
            if figure not in FIGURES or side not in ("min", "max"):
                raise InputError(
                    f"{where}.{section}: unknown tolerance '{key}'; expected <figure>_min or <figure>_max "
                    f"with one of {', '.join(FIGURES)}"
                )
            if isinstance(limit, bool) or not isinstance(limit, int | float):
                raise InputError(f"{where}.{section}: {key} is {limit!r}, expected a number")


def parse_chip(text: str, kind: type[C], where: str) -> C:
    """The chip that the text of a TOML file describes; errors name the file (`where`) and the key."""
    table = parse_toml_of(text, where)
    if isinstance(tolerances := table.get("tolerances"), dict):
        check_tolerances(tolerances, f"{where}: tolerances")
    origins: dict[str, object] = {}
    plain = {
        key: value if key == "tolerances" else _figures(value, key, where, origins)
        for key, value in table.items()
    }
    return from_table(kind, plain | {"origins": origins}, where)


def _figures(entry: object, key: str, where: str, origins: dict[str, object]) -> object:
    """Values without their sources, which go to `origins`."""
    if not isinstance(entry, dict):
        if "." in key and not key.endswith(".title"):
            raise InputError(f"{where}: key '{key}' needs {{ value, source, status }}, found {entry!r}")
        return entry  # name, backend, title
    if "value" not in entry:
        return {name: _figures(part, f"{key}.{name}", where, origins) for name, part in entry.items()}
    if set(entry) != {"value", "source", "status"}:
        raise InputError(f"{where}: key '{key}' needs value, source and status, found {', '.join(entry)}")
    origins[key] = {"source": entry["source"], "status": entry["status"]}
    return entry["value"]
