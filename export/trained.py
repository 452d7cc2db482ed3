"""From a checkpoint to a graph with contract and metadata."""

import json
from dataclasses import replace
from pathlib import Path

import torch

from nrf.config import to_table
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.graph import Graph
from nrf.export.tracing import from_torch
from nrf.model.network import Network, normalised
from nrf.model.neurons import IF
from nrf.training import checkpoint


def from_checkpoint(path: str | Path) -> Graph:
    """The whole network up to its output membranes; the readout becomes part of the contract.

    >>> from nrf.export import from_checkpoint, write_graph
    >>> write_graph("model.nir", from_checkpoint("runs/demo"))  # doctest: +SKIP
    """
    saved = checkpoint.read(path)
    graph = from_network(saved.network(), name=str(path))
    metadata = {
        "preset": saved.config.name,
        "config": json.dumps(to_table(saved.config)),
        "training": json.dumps(saved.summary),
        "units": "seconds, volts",
        "grid": "none",
        "checksum": graph.checksum,
    }
    return replace(graph, metadata=graph.metadata | metadata)


def from_network(network: Network, name: str = "network") -> Graph:
    """The graph of one of our networks."""
    config = network.config
    if config.integers:
        network = normalised(network)  # the weights that run are the rounded ones
    if config.history > 1:
        raise InputError(
            f"{name}: the network stacks {config.history} frames (network.history), which NIR cannot say"
        )
    contract = Contract(
        dt=config.dt,
        reset=config.reset,
        fire=config.fire,
        v_min=config.v_min if config.neuron == "if" else None,
        output="spikes" if isinstance(network.body.out, IF) else "membrane",
        readout=network.readout,
    )
    return from_torch(network.body, torch.zeros(1, *config.input), contract, name)
