"""Options of the conformance tests, and a mirror of the reference that stands in for a chip.

pytest tests/conformance                                   everything that is available
pytest tests/conformance --target loihi2 --runtime lava    one runtime; it must be there
pytest tests/conformance --hardware -m "speck2f and chip"  one board
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from nrf.backends import Runtime, backend_of, reference
from nrf.backends.border.chip import Target, load_target, parse_target, target_names
from nrf.backends.border.recording import Provenance, Recording, Spikes
from nrf.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))  # chromium.py

MIRROR = """
name = "mirror"
backend = "mirror"
title = "The reference itself"
[tolerances.L1]
f1_min = 1.0
membrane_max = 0.0
[tolerances.L2]
f1_min = 1.0
count_error_max = 0.0
[tolerances.L3]
px_median_max = 0.0
px_p95_max = 0.0
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--target", action="append", help="only this chip (may be repeated)")
    group.addoption("--runtime", action="append", help="only this runtime, which must be present")
    group.addoption("--hardware", action="store_true", help="also run on connected chips")


def pytest_configure(config: pytest.Config) -> None:
    for name in target_names():
        config.addinivalue_line("markers", f"{name}: conformance cases on this target")
    for device in ("chip", "simulation"):
        config.addinivalue_line("markers", f"{device}: conformance cases that run on a {device}")


def option(config: pytest.Config, name: str) -> Any:
    """An option; None where pytest met this folder too late to offer it."""
    return getattr(config.option, name, None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`place` is every (target, runtime) that the options ask for, marked by target and device."""
    if "place" not in metafunc.fixturenames:
        return
    wanted, hardware = option(metafunc.config, "runtime"), option(metafunc.config, "hardware")
    places = []
    for target in option(metafunc.config, "target") or target_names():
        for name, runtime in backend_of(load_target(target)).RUNTIMES.items():
            if name in wanted if wanted else runtime.device == "simulation" or hardware:
                marks = [getattr(pytest.mark, target), getattr(pytest.mark, runtime.device)]
                places.append(pytest.param((target, name), id=f"{target}-{name}", marks=marks))
    if not places:
        raise pytest.UsageError(f"no target has the runtime {', '.join(wanted)}")
    metafunc.parametrize("place", places)


def random_copy(recording: Recording, seed: int) -> Recording:
    """The same shapes with spikes and membranes drawn at random."""
    rng = np.random.default_rng(seed)
    noise = {name: rng.random((recording.steps, *shape)) for name, shape in recording.shapes.items()}
    return Recording(
        steps=recording.steps,
        shapes=recording.shapes,
        spikes={name: Spikes.from_dense(noise[name] < 0.3) for name in recording.spikes},
        membranes=noise,
        coordinates=None
        if recording.coordinates is None
        else rng.uniform(0, 20, recording.coordinates.shape),
        provenance=recording.provenance,
    )


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target whose chip is the reference: `same` runs it, `noise` makes it up, `shaky` does so anew each
    time, `crash` gives up, `blind` sees only the output, and `gone` is not there."""
    module: Any = ModuleType("nrf.backends.mirror")
    module.RUNTIMES = {
        "builtin": Runtime("builtin", "simulation", lambda: None),
        "same": Runtime("same", "simulation", lambda: None),
        "noise": Runtime("noise", "simulation", lambda: None),
        "shaky": Runtime("shaky", "chip", lambda: None, exact=False),
        "crash": Runtime("crash", "simulation", lambda: None),
        "blind": Runtime("blind", "simulation", lambda: None),
        "gone": Runtime("gone", "chip", lambda: "no board is connected; plug one in"),
    }
    module.check = lambda graph, target: []
    module.lower = lambda graph, target, calibration=None: graph
    draws = iter(range(1000))

    def run(
        program: Any, frames: Any, runtime: str = "builtin", teacher: Recording | None = None
    ) -> Recording:
        if runtime == "crash":
            raise InputError("the simulator has died")
        found = reference.run(program, frames, teacher=teacher)
        provenance = Provenance(runtime, module.RUNTIMES[runtime].device, "mirror", counters={"saturated": 0})
        found = replace(found, provenance=provenance)
        if runtime == "blind":
            last = found.nodes[-1]
            parts = {key: getattr(found, key) for key in ("shapes", "spikes", "membranes")}
            kept = {key: {last: part[last]} if last in part else {} for key, part in parts.items()}
            found = replace(found, **kept)
        return random_copy(found, next(draws)) if runtime in ("noise", "shaky") else found

    module.run = run
    monkeypatch.setitem(sys.modules, "nrf.backends.mirror", module)
    return parse_target(MIRROR, "mirror.toml")


@pytest.fixture(scope="session")
def page(browser: str) -> Iterator[Any]:
    """A tab of a real browser."""
    from chromium import chromium

    with chromium(browser) as tab:
        yield tab
