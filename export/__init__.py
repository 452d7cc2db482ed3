"""Graphs: NIR in and out, contract, validation, canonical form, export from torch.

>>> from nrf.export import from_torch, read_graph
>>> graph = read_graph("model.nir", dt=1e-4)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nrf.export.canonical import canonical
from nrf.export.contract import Contract
from nrf.export.graph import Graph
from nrf.export.nir_files import read_graph, write_graph
from nrf.export.validate import validate

if TYPE_CHECKING:
    from nrf.export.tracing import from_torch
    from nrf.export.trained import from_checkpoint

__all__ = [
    "Contract",
    "Graph",
    "canonical",
    "from_checkpoint",
    "from_torch",
    "read_graph",
    "validate",
    "write_graph",
]
LAZY = {"from_torch": "tracing", "from_checkpoint": "trained"}


def __getattr__(name: str) -> Any:
    """Torch and Norse are loaded only by those who export."""
    if name in LAZY:
        return getattr(import_module(f"nrf.export.{LAZY[name]}"), name)
    raise AttributeError(f"module 'nrf.export' has no attribute '{name}'")
