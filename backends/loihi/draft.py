"""A graph on its way to integers: its populations, when they run, and how each is written once decided."""

from dataclasses import dataclass, replace

import numpy as np

from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.quantise import LOIHI, Choice, Numbers, drive, neurons, synapses
from nrf.backends.lowering.dynamics import Dynamics, dynamics_of, rewound
from nrf.backends.lowering.layers import Layers, Operator, layers_of
from nrf.backends.lowering.timing import extra_delay, latencies
from nrf.export.graph import Graph


@dataclass(frozen=True)
class Draft:
    """Everything that lowering knows before any scale is chosen."""

    graph: Graph
    layers: Layers
    late: dict[str, int]  # steps that each population (and the input, 0) runs late
    dynamics: dict[str, Dynamics]
    drives: dict[str, tuple[Operator, ...]]  # of the connections into each population, volts per spike
    numbers: Numbers

    @classmethod
    def of(cls, graph: Graph, numbers: Numbers = LOIHI) -> "Draft":
        """Read a canonical graph."""
        layers = layers_of(graph)
        late = latencies(layers, graph.contract, graph.input)
        dynamics = {
            name: rewound(dynamics_of(population, graph.contract), late[name])
            for name, population in layers.populations.items()
        }
        drives = {
            name: tuple(drive(connection, dynamics[name]) for connection in layers.into(name))
            for name in layers.populations
        }
        return cls(graph, layers, late, dynamics, drives, numbers)

    def fires(self, name: str) -> bool:
        """False for a population that is only read as a membrane."""
        return bool(np.isfinite(self.dynamics[name].threshold).any())

    def program(self, target: str) -> LoihiProgram:
        """A program without neurons."""
        graph = self.graph
        output = next(iter(graph.inputs_of(graph.output)))
        return LoihiProgram(
            graph.name, target, graph.contract, graph.input, graph.shapes[graph.input], output, {}, ()
        )

    def added(self, program: LoihiProgram, name: str, choice: Choice) -> LoihiProgram:
        """The program with one more population and the synapses into it."""
        contract = self.graph.contract
        shape = self.layers.populations[name].shape
        group = neurons(
            name, shape, self.dynamics[name], choice, contract.fire == "ge", self.late[name], self.numbers
        )
        connections = self.layers.into(name)
        wires = [
            synapses(one, operator, choice.scale, exponent, extra_delay(one, contract, self.late))
            for one, operator, exponent in zip(connections, self.drives[name], choice.exponents, strict=True)
        ]
        return replace(
            program, neurons={**program.neurons, name: group}, synapses=(*program.synapses, *wires)
        )
