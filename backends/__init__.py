"""Chips and how to run on them: reference, Loihi 2, Speck 2f, conformance.

A chip is one folder here and one TOML in `hw_configs/`. The folder's package offers what `Backend` lists;
the command line and the conformance suite find it by the name in the TOML.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from nrf.backends.border.chip import Target
from nrf.errors import InputError
from nrf.findings import errors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nrf.backends.border.recording import Recording
    from nrf.export.graph import Graph
    from nrf.findings import Finding


@dataclass(frozen=True)
class Runtime:
    """Something that runs a program."""

    name: str  # builtin | lava | loihi2 | sinabs | speck
    device: Literal["simulation", "chip"]
    missing: Callable[[], str | None]  # why it cannot run here and what to do, or None if it can
    exact: bool = True  # False for asynchronous chips: compared on counts and coordinates only


class Backend(Protocol):
    """What the package of a chip offers."""

    RUNTIMES: dict[str, Runtime]

    def check(self, graph: "Graph", target: Target) -> "list[Finding]":
        """All findings of all rules."""

    def lower(
        self,
        graph: "Graph",
        target: Target,
        calibration: "Sequence[NDArray[np.float32]] | None" = None,
        **options: Any,
    ) -> Any:
        """The integer program; refuses a graph with errors."""

    def to_grid(self, graph: "Graph", target: Target, **options: Any) -> "Graph":
        """The same graph with its parameters rounded to the chip's numbers."""

    def load(self, path: str | Path) -> Any:
        """Read a program file. Programs have `.save(path)`, `.target`, `.contract`, `.checksum`."""

    def run(
        self, program: Any, frames: "NDArray[Any]", runtime: str = "builtin", **options: Any
    ) -> "Recording":
        """Run frames (T, *input shape) through a program."""

    def session(self, program: Any) -> "Callable[[NDArray[Any]], NDArray[Any]]":
        """The built-in simulator as a function of the next frames; state stays in it. See `stream`."""


def backend_of(target: Target) -> Backend:
    """The package that lowers for a chip.

    >>> backend_of(nrf.backends.border.chip.load_target("loihi2")).RUNTIMES["builtin"].device
    'simulation'
    """
    try:
        return cast(Backend, import_module(f"nrf.backends.{target.backend}"))
    except ModuleNotFoundError as error:
        raise InputError(f"target '{target.name}': no backend '{target.backend}' in nrf.backends") from error


def on_grid(graph: "Graph", target: Target) -> "Graph":
    """The graph with its parameters rounded to the chip's numbers, and metadata that say so.

    The file's float semantics and the chip's integers then agree.

    >>> write_graph("model.nir", on_grid(from_checkpoint("runs/demo"), load_target("loihi2")))
    """
    backend = backend_of(target)
    if found := errors(backend.check(graph, target)):
        raise InputError("\n       ".join(f"{graph.name}: {finding}" for finding in found))
    rounded = backend.to_grid(graph, target)
    return replace(rounded, metadata=rounded.metadata | {"grid": target.name, "checksum": rounded.checksum})
