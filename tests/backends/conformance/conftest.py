"""Options of the conformance tests, and a mirror of the reference that stands in for a chip.

pytest tests/backends/conformance                                   everything that is available
pytest tests/backends/conformance --target loihi2 --runtime lava    one runtime; it must be there
pytest tests/backends/conformance --hardware -m "speck2f and chip"  one board
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nrf.backends import reference
from nrf.backends.border import (
    Absent,
    Backend,
    Chip,
    Lowered,
    Placement,
    Program,
    Provenance,
    Recording,
    RunOptions,
    Runtime,
    Spikes,
    backend_of,
    chip_names,
    load_chip,
    registry,
)
from nrf.backends.border.chip import parse_chip
from nrf.errors import InputError
from nrf.export import Contract, Graph

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
    for name in chip_names():
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
    for target in option(metafunc.config, "target") or chip_names():
        for name, runtime in backend_of(load_chip(target)).runtimes.items():
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
        answers={name: rng.uniform(0, 20, answer.shape) for name, answer in recording.answers.items()},
        provenance=recording.provenance,
    )


Register = Callable[[str, Backend[Any, Any]], None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """Make a backend known under a name, as an installed package would."""
    known: dict[str, Backend[Any, Any]] = {}
    real = registry.backend_named

    def named(name: str) -> Backend[Chip, Program]:
        return known[name] if name in known else real(name)

    monkeypatch.setattr(registry, "backend_named", named)
    return known.__setitem__


@dataclass(frozen=True)
class MirrorProgram:
    """The graph itself."""

    graph: Graph
    target: str = "mirror"
    latencies: dict[str, int] = field(default_factory=dict)
    lowered: Lowered = field(default_factory=lambda: Lowered(Placement((), 1), ()))
    checksum: str = "0" * 16

    @property
    def contract(self) -> Contract:
        return self.graph.contract

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.graph.shapes[self.graph.input]

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.graph.read_populations

    def save(self, path: str | Path) -> None:
        raise NotImplementedError


RUNTIMES = (
    Runtime("builtin"),
    Runtime("same"),
    Runtime("noise"),
    Runtime("shaky", "chip", exact=False),
    Runtime("crash"),
    Runtime("blind"),
    Runtime("gone", "chip", absent=lambda: Absent("no board is connected", "plug one in")),
)


@pytest.fixture
def mirror(register: Register) -> Chip:
    """A chip that is the reference: `same` runs it, `noise` makes it up, `shaky` does so anew each time,
    `crash` gives up, `blind` sees only the output, and `gone` is not there."""
    draws = iter(range(1000))

    def run(program: MirrorProgram, frames: Any, runtime: str, options: RunOptions) -> Recording:
        if runtime == "crash":
            raise InputError("the simulator has died")
        result = reference.run(program.graph, frames, teacher=options.teacher)
        device = next(known.device for known in RUNTIMES if known.name == runtime)
        provenance = Provenance(runtime, device, "mirror", counters={"saturated": 0})
        result = replace(result, provenance=provenance)
        if runtime == "blind":
            last = result.nodes[-1]
            parts = {key: getattr(result, key) for key in ("shapes", "spikes", "membranes")}
            kept = {key: {last: part[last]} if last in part else {} for key, part in parts.items()}
            result = replace(result, **kept)
        return random_copy(result, next(draws)) if runtime in ("noise", "shaky") else result

    backend = Backend[Chip, MirrorProgram](
        chip=Chip,
        config=Path(__file__),
        check=lambda graph, chip: [],
        lower=lambda graph, chip, options: MirrorProgram(graph),
        load=lambda path: pytest.fail("no files"),
        run=run,
        session=lambda program: lambda frames: run(program, frames, "builtin", RunOptions()),
        runtimes={runtime.name: runtime for runtime in RUNTIMES},
    )
    register("mirror", backend)
    return parse_chip(MIRROR, Chip, "mirror.toml")


@pytest.fixture(scope="session")
def page(browser: str) -> Iterator[Any]:
    """A tab of a real browser."""
    from chromium import chromium

    with chromium(browser) as tab:
        yield tab
