"""Graphs: NIR in and out, contract, validation, canonical form."""

from nrf.export.canonical import canonical
from nrf.export.contract import Contract
from nrf.export.files import read_graph, write_graph
from nrf.export.graph import Graph
from nrf.export.validate import validate

__all__ = ["Contract", "Graph", "canonical", "read_graph", "validate", "write_graph"]
