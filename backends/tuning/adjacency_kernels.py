"""Loops over events and their synapses."""

from typing import Any

from numpy.typing import NDArray

from nrf.kernels import compiled

Array = NDArray[Any]


@compiled(nogil=True, error_model="numpy")
def scatter(drive: Array, values: Array, begins: Array, targets: Array, rows: Array, neurons: Array) -> None:
    """Add the synapses of every event to its row of the drive."""
    for event in range(len(rows)):
        row, neuron = drive[rows[event]], neurons[event]
        for synapse in range(begins[neuron], begins[neuron + 1]):
            row[targets[synapse]] += values[synapse]


@compiled(nogil=True, error_model="numpy")
def gather(
    given: Array, to_values: Array, begins: Array, targets: Array, rows: Array, neurons: Array
) -> None:
    """The transposed: gradients of the drive added up at the synapses."""
    for event in range(len(rows)):
        row, neuron = given[rows[event]], neurons[event]
        for synapse in range(begins[neuron], begins[neuron + 1]):
            to_values[synapse] += row[targets[synapse]]
