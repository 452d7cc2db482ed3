"""A graph on its way to integers: its populations, when they run, and how each is written once decided."""

from dataclasses import replace
from functools import cached_property

from nrf.backends.border import Placement
from nrf.backends.loihi.chip import Loihi
from nrf.backends.loihi.placement import place
from nrf.backends.loihi.program import LoihiProgram, Synapses
from nrf.backends.loihi.quantise import Choice, Layer, Numbers
from nrf.backends.lowering.dynamics import dynamics_of
from nrf.backends.lowering.layers import Connection, layers_of
from nrf.backends.lowering.readout import divided
from nrf.backends.lowering.timing import extra_delay, latencies
from nrf.errors import InputError
from nrf.export.graph import Graph

KEPT = 4  # ways to write synapses that are kept to be tried again


class Draft:
    """A canonical graph and a chip, as rules and lowering see them; what is costly is worked out once."""

    def __init__(self, graph: Graph, chip: Loihi, format: str = "program") -> None:
        parts = divided(graph, membranes=True)
        self.graph, self.readout, self.moved = parts.graph, parts.readout, parts.findings
        self.contract = graph.contract  # of the whole, with what the host makes of the outputs
        self.outputs = graph.read_populations
        self.chip, self.numbers = chip, Numbers.of(chip.bits, format)
        self.last: list[tuple[str, Choice, list[Synapses]]] = []  # that were written, the newest first

    @cached_property
    def layers(self) -> dict[str, Layer]:
        """Every population with what drives it, in topological order."""
        whole, contract_of = layers_of(self.graph), self.graph.contract_of
        return {
            name: Layer(
                population,
                dynamics_of(population, contract_of(name)),
                tuple(whole.into(name)),
                at_threshold=contract_of(name).fire == "ge",
                numbers=self.numbers,
                subtracts=contract_of(name).reset == "subtract" and hasattr(population.node, "v_reset"),
            )
            for name, population in whole.populations.items()
        }

    @property
    def connections(self) -> list[Connection]:
        """Into all populations."""
        return [connection for layer in self.layers.values() for connection in layer.connections]

    @cached_property
    def late(self) -> dict[str, int]:
        """Steps that each population (and the input, 0) runs late; an InputError where none are enough."""
        return latencies(self.connections, self.graph.contract, [self.graph.input, *self.layers])

    @cached_property
    def latencies(self) -> dict[str, int]:
        """Steps from the contract's spikes, which may come a step after the membrane's, to the chip's."""
        emitted = int(self.graph.contract.emit == "late")
        return {name: self.late[name] - emitted * layer.fires for name, layer in self.layers.items()}

    def delay(self, connection: Connection) -> int:
        """Steps of delay that the synapses of a connection need on top of their own one."""
        return extra_delay(connection, self.graph.contract, self.late)

    @cached_property
    def placement(self) -> Placement | InputError:
        """Where everything would go, or why it cannot."""
        shapes = {name: layer.population.shape for name, layer in self.layers.items()}
        into = {name: [one.operator for one in layer.connections] for name, layer in self.layers.items()}
        try:
            return place(shapes, into, self.chip)
        except InputError as error:
            return error

    def program(self) -> LoihiProgram:
        """A program without neurons."""
        graph = self.graph
        return LoihiProgram(
            name=graph.name,
            target=self.chip.name,
            bits=self.chip.bits,
            contract=self.contract,
            input=graph.input,
            input_shape=graph.shapes[graph.input],
            outputs=self.outputs,
            readout=self.readout,
            neurons={},
            synapses=(),
        )

    def added(self, program: LoihiProgram, name: str, choice: Choice) -> LoihiProgram:
        """The program with one more population and the synapses into it."""
        layer = self.layers[name]
        neurons = layer.neurons(choice, self.late[name], self.latencies[name])
        return replace(
            program,
            neurons=program.neurons | {name: neurons},
            synapses=(*program.synapses, *self._synapses(name, choice)),
        )

    def _synapses(self, name: str, choice: Choice) -> list[Synapses]:
        """Into a population; the very same ones for a choice of the same weights: rounding takes long."""
        for last, written, synapses in self.last:
            if last == name and written.has_weights_of(choice):
                return synapses
        layer = self.layers[name]
        synapses = layer.synapses(choice, [self.delay(connection) for connection in layer.connections])
        self.last = [(name, choice, synapses), *self.last[: KEPT - 1]]
        return synapses
