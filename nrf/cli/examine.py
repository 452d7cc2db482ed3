"""What is here, what is missing, and the command that would fix it."""

import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from typing import Literal

from nrf.errors import InputError

State = Literal["good", "absent", "broken"]


@dataclass(frozen=True)
class Item:
    """One line of the doctor's report."""

    group: Literal["main", "vendor", "chip"]
    name: str
    state: State
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """A plain dictionary for `--json`."""
        return asdict(self)


def examine() -> list[Item]:
    """Look at the main environment, the vendors' environments and the chips.

    >>> [item.name for item in examine() if item.state == "broken"]
    []
    """
    from nrf.backends.vendors import VENDORS

    with ThreadPoolExecutor() as pool:  # each vendor takes seconds to start
        vendors = pool.map(_vendor, VENDORS)
        return [_python(), *_libraries(), *vendors, *_runtimes()]


def _python() -> Item:
    good = (3, 11) <= sys.version_info[:2] < (3, 14)
    return Item(
        "main",
        "python",
        "good" if good else "broken",
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}",
        "" if good else "use Python 3.11, 3.12 or 3.13",
    )


def _libraries() -> list[Item]:
    return [_library(name) for name in ("torch", "norse", "nir", "numba")]


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
    from nrf.backends.vendors import missing
    from nrf.backends.vendors.environment import own_python, probe, python_of

    try:
        if reason := missing(name):
            return Item("vendor", name, "absent", "no environment", reason.rpartition("run: ")[2])
        python = python_of(name)
        assert python
        place = "your own Python" if own_python(name) else "starts"
        return Item("vendor", name, "good", f"{probe(name, python)}, {place}, {python}")
    except InputError as error:
        return Item("vendor", name, "broken", str(error), f"remove its folder, then: nrf setup {name}")


def _runtimes() -> list[Item]:
    """Every runtime of every chip: what could run a program here, and what really is a chip."""
    from nrf.backends.border.chip import target_names

    return [item for target in target_names() for item in _chip(target)]


def _chip(target: str) -> list[Item]:
    from nrf.backends import backend_of
    from nrf.backends.border.chip import load_target

    try:
        runtimes = list(backend_of(load_target(target)).RUNTIMES.values())
    except Exception as error:  # a doctor does not faint
        return [
            Item(
                "chip",
                target,
                "broken",
                f"{type(error).__name__}: {error}",
                "reinstall nrf",
            )
        ]
    items = []
    for runtime in runtimes:
        what, _, remedy = (runtime.missing() or "").partition("; ")
        found = what or ("the chip itself" if runtime.device == "chip" else "simulation")
        state: State = "absent" if what else "good"
        items.append(Item("chip", f"{target} on {runtime.name}", state, found, remedy.removeprefix("run: ")))
    return items
