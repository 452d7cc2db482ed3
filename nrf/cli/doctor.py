"""`nrf doctor`: what is here, what is missing, and the command that would fix it."""

import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Literal

import typer
from packaging.specifiers import SpecifierSet

from nrf.cli.common import Json, print_json, print_table
from nrf.errors import InputError

if TYPE_CHECKING:
    from nrf.backends.border import Runtime

State = Literal["good", "absent", "broken"]


@dataclass(frozen=True)
class Item:
    """One line of the doctor's report."""

    group: Literal["main", "vendor", "chip"]
    name: str
    state: State
    found: str
    remedy: str = ""
    path: str = ""


def doctor(json: Json = False) -> None:
    """Show what is here, what is missing, and what would fix it."""
    items = examine()
    if json:
        print_json([asdict(item) for item in items])
    else:
        print_table(("", "", "what is there"), [(item.name, item.state, item.found) for item in items])
        for item in items:  # on lines of their own, so that a path or a command can be copied whole
            if item.path:
                print(f"{item.name} is at {item.path}")
        for item in items:
            if item.remedy:
                print(f"{item.name}: {item.remedy}")
    raise typer.Exit(any(item.state == "broken" for item in items))


def examine() -> list[Item]:
    """Look at the main environment, the vendors' environments and the chips.

    >>> [item.name for item in examine() if item.state == "broken"]  # doctest: +SKIP
    []
    """
    from nrf.backends.border import chip_names
    from nrf.backends.vendors import VENDORS

    libraries = map(_library, ("torch", "norse", "nir", "numba"))
    with ThreadPoolExecutor() as pool:  # each vendor takes seconds to start
        vendors = pool.map(_vendor, VENDORS)
        chips = [item for name in chip_names() for item in _chip(name)]
        return [_python(), *libraries, *vendors, *chips]


def _python() -> Item:
    """The Python that runs us, and whether our metadata allow it."""
    version = platform.python_version()
    found = f"{version} on {platform.system()} {platform.machine()}"
    allowed = metadata.metadata("nrf")["Requires-Python"]
    if not allowed or SpecifierSet(allowed).contains(version, prereleases=True):
        return Item("main", "python", "good", found, path=sys.executable)
    remedy = f"make an environment with Python {allowed}, and install nrf there"
    return Item("main", "python", "broken", f"{found}, nrf needs {allowed}", remedy, sys.executable)


def _library(name: str) -> Item:
    try:
        module = import_module(name)
        found = metadata.version(name)
    except Exception as error:  # a broken library can raise anything
        return Item("main", name, "broken", f"{type(error).__name__}: {error}", "make setup")
    if name == "torch":
        devices = [f"cpu with {module.get_num_threads()} threads"]
        devices += [module.cuda.get_device_name(index) for index in range(module.cuda.device_count())]
        devices += ["mps"] if module.backends.mps.is_available() else []
        found += f" on {', '.join(devices)}"
    return Item("main", name, "good", found)


def _vendor(name: str) -> Item:
    from nrf.backends.vendors import absent
    from nrf.backends.vendors.environment import disk_space, own_python, probe, python_of

    try:
        if reason := absent(name):
            return Item("vendor", name, "absent", reason.reason, reason.remedy)
        python = python_of(name)
        assert python
        size = disk_space(name)  # of what we built
        space = f", {size / 1e9:.1f} GB" if size else ""
        whose = "your own Python" if own_python(name) else "starts"
        return Item("vendor", name, "good", f"{probe(name, python)}, {whose}{space}", path=str(python))
    except InputError as error:
        return Item("vendor", name, "broken", str(error), f"remove its folder, then: nrf setup {name}")


def _chip(name: str) -> list[Item]:
    """Every runtime of a chip: what could run a program here, and what really is a chip."""
    from nrf.backends.border import backend_of, load_chip

    try:
        return [_runtime(name, runtime) for runtime in backend_of(load_chip(name)).runtimes.values()]
    except Exception as error:  # a doctor does not faint
        return [Item("chip", name, "broken", f"{type(error).__name__}: {error}", "reinstall its package")]


def _runtime(chip: str, runtime: "Runtime") -> Item:
    if reason := runtime.absent():
        return Item("chip", f"{chip} on {runtime.name}", "absent", reason.reason, reason.remedy)
    kind = "the chip itself" if runtime.device == "chip" else "simulation"
    return Item("chip", f"{chip} on {runtime.name}", "good", kind)
