"""From a graph to integers: layers and dynamics are those of `nrf.backends.lowering`.

weight = round(scale gain w)       scale: the largest power of two with which all weights fit
threshold = floor(scale theta)     exact, since v is an integer
"""

import numpy as np
from scipy import sparse

from mini_chip.chip import MiniChip, check
from mini_chip.program import MiniProgram, Population, Synapses
from nrf.backends.border import CoreUse, Loss, Lowered, LowerOptions, Memory, Placement
from nrf.backends.lowering.dynamics import dynamics_of
from nrf.backends.lowering.layers import Layers, layers_of
from nrf.export import Graph
from nrf.findings import refuse_errors


def lower(graph: Graph, chip: MiniChip, options: LowerOptions) -> MiniProgram:
    """The program of a graph; nothing is measured, so the calibration clips are not needed."""
    refuse_errors(check(graph, chip), graph.name)
    layers = layers_of(graph)
    results = [_population(layers, name, graph, chip) for name in layers.populations]
    populations = tuple(population for population, _ in results)
    cores = tuple(
        CoreUse(core, population.name, 0, size - 1, (Memory("neurons", size, chip.cores.neurons),))
        for core, population in enumerate(populations)
        for size in [len(population.threshold)]
    )
    return MiniProgram(
        name=graph.name,
        target=chip.name,
        contract=graph.contract,
        input=graph.input,
        input_shape=graph.shapes[graph.input],
        outputs=graph.read_populations,
        state_bits=chip.bits.state,
        populations=populations,
        lowered=Lowered(Placement(cores, chip.cores.count), tuple(loss for _, loss in results)),
    )


def _population(layers: Layers, name: str, graph: Graph, chip: MiniChip) -> tuple[Population, Loss]:
    population = layers.populations[name]
    dynamics = dynamics_of(population, graph.contract)
    gain = float(dynamics.gain[0])
    matrices = [(into.source, into.operator.matrix() * gain) for into in layers.into(name)]
    largest = max((abs(matrix.data).max(initial=0.0) for _, matrix in matrices), default=0.0) or 1.0
    scale = 2.0 ** np.floor(np.log2((2 ** (chip.bits.weight - 1) - 1) / largest))
    exact = all(np.all(matrix.data * scale % 1 == 0) for _, matrix in matrices)
    size = int(np.prod(population.shape))
    repeat = size // dynamics.groups
    return Population(
        name=name,
        shape=population.shape,
        scale=float(scale),
        threshold=np.repeat(np.floor(dynamics.threshold * scale).astype(np.int64), repeat),
        bias=np.repeat(np.rint(dynamics.bias * scale).astype(np.int64), repeat),
        synapses=tuple(
            Synapses(source, sparse.csr_array((matrix * scale).rint().astype(np.int32)))
            for source, matrix in matrices
        ),
    ), Loss(name, "exact" if exact else "rounded", notes={"scale": f"{scale:g}"})
