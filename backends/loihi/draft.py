"""A graph on its way to integers: its populations, when they run, and how each is written once decided."""

from dataclasses import dataclass, replace

import numpy as np

from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.quantise import Choice, Numbers, drive, neurons, synapses
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
    def of(cls, graph: Graph, numbers: Numbers) -> "Draft":
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
        return LoihiProgram(
            name=graph.name,
            target=target,
            bits=self.numbers.bits,
            contract=graph.contract,
            input=graph.input,
            input_shape=graph.shapes[graph.input],
            output=graph.inputs_of(graph.output)[0],
            neurons={},
            synapses=(),
        )

    def added(self, program: LoihiProgram, name: str, choice: Choice) -> LoihiProgram:
        """The program with one more population and the synapses into it."""
        contract, shape = self.graph.contract, self.layers.populations[name].shape
        at_threshold, late = contract.fire == "ge", self.late[name]
        population = neurons(shape, self.dynamics[name], choice, at_threshold, late, self.numbers)
        into = [
            synapses(
                connection, operator, choice.scale, exponent,
                extra_delay(connection, contract, self.late), self.numbers.bits,
            )
            for connection, operator, exponent in zip(
                self.layers.into(name), self.drives[name], choice.exponents, strict=True
            )
        ]  # fmt: skip
        return replace(
            program, neurons={**program.neurons, name: population}, synapses=(*program.synapses, *into)
        )
