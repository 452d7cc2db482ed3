"""Programs as netx files (HDF5, `.net`), which lava-dl loads.

    layer/<n>/type, shape (channels, rows, columns), weight, bias, stride, padding, dilation, groups
    layer/<n>/neuron/type, iDecay, vDecay, vThMant           du = iDecay - 1, bias << 6

netx knows chains of convolutions and matrices, and matrices that feed back into themselves. It has no weight
exponent: weights are written shifted. Lowering for this format keeps to that; what it cannot say is refused.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nrf.backends.loihi.program import LoihiProgram, Neurons, Synapses
from nrf.backends.lowering.operators import Conv
from nrf.errors import InputError
from nrf.files import atomic_write

if TYPE_CHECKING:
    import h5py

BIAS_EXPONENT = 6


def write_net(program: LoihiProgram, path: Path) -> None:
    """Write a program as a `.net` file; refuses, by name, what netx cannot express.

    >>> write_net(lower(graph, chip, LowerOptions(format="net")), Path("model.net"))  # doctest: +SKIP
    """
    import h5py

    chain = _chain(program)
    with atomic_write(path) as part, h5py.File(part, "w") as file:
        _put(file.create_group("layer/0"), type="input", shape=program.input_shape)
        number, flat = 1, len(program.input_shape) == 1
        for neurons, into, back in chain:
            convolved = isinstance(into.operator, Conv)
            if not convolved and not flat:
                _put(file.create_group(f"layer/{number}"), type="flatten")
                number, flat = number + 1, True
            _layer(file.create_group(f"layer/{number}"), neurons, into, back)
            number += 1
            flat = flat or not convolved


def _chain(program: LoihiProgram) -> list[tuple[Neurons, Synapses, Synapses | None]]:
    """Populations in order, with the synapses into each and those from itself; refused if it is no chain."""
    if program.readout is not None:
        named = ", ".join(node.name for node in program.readout.nodes)
        raise InputError(f"the host computes {named} behind the last population, which netx cannot express")
    source, chain = program.input, []
    for name, neurons in program.neurons.items():
        into = [synapses for synapses in program.into(name) if synapses.source != name]
        back = [synapses for synapses in program.into(name) if synapses.source == name]
        for synapses in (into, back):
            if len(synapses) == 2 and len({(each.source, each.delay) for each in synapses}) == 1:
                words = "two synapses per weight (16 bits), netx has one; lower with --format net"
                raise InputError(f"{synapses[0].name}: {words}")
        if len(into) != 1 or into[0].source != source or len(back) > 1:
            sources = ", ".join(synapses.source for synapses in program.into(name))
            raise InputError(f"node '{name}' is fed by {sources}; netx has only chains")
        _expressible(name, neurons, into[0], back)
        chain.append((neurons, into[0], back[0] if back else None))
        source = name
    return chain


def _expressible(name: str, neurons: Neurons, into: Synapses, back: list[Synapses]) -> None:
    """Refuse what the format has no words for."""
    if neurons.subtracts:
        raise InputError(f"node '{name}': resets by subtraction, netx has no ATRLIF neuron")
    for synapses in (into, *back):
        if synapses.delay:
            raise InputError(f"{synapses.name}: a delay of {synapses.delay} steps, which netx cannot express")
        if synapses.exponent < 0:
            raise InputError(f"{synapses.name}: exponent {synapses.exponent}; lower with --format net")
        if not isinstance(synapses.operator, Conv):
            weight = synapses.operator.matrix().data.astype(int) << synapses.exponent
            if not weight.any() or weight.max() > 254 or weight.min() < -256:
                raise InputError(f"{synapses.name}: weights are all 0 or beyond 9 bit, netx cannot load them")
    if back and (isinstance(into.operator, Conv) or isinstance(back[0].operator, Conv)):
        raise InputError(f"node '{name}': netx has recurrence for matrices only, not for convolutions")
    if neurons.u0.any() or neurons.v0.any():
        raise InputError(f"node '{name}': netx starts from silence, this population does not")
    if np.any(neurons.bias % (1 << BIAS_EXPONENT)):
        raise InputError(f"node '{name}': biases are no multiples of 64; lower with --format net")


def _layer(group: "h5py.Group", neurons: Neurons, into: Synapses, back: Synapses | None) -> None:
    bias = neurons.bias >> BIAS_EXPONENT
    neuron = {"iDecay": neurons.du + 1, "vDecay": neurons.dv, "vThMant": neurons.vth}
    operator = into.operator
    if isinstance(operator, Conv):
        kind: dict[str, Any] = {
            "type": "conv",
            "shape": operator.output_shape,
            "weight": operator.weight.astype(np.int32) << into.exponent,
            "stride": operator.stride,
            "padding": operator.padding,
            "dilation": operator.dilation,
            "groups": operator.groups,
        }
    else:
        kind = {
            "type": "dense_rec" if back else "dense",
            "shape": (neurons.size,),
            "weight": operator.matrix().toarray().astype(np.int32) << into.exponent,
        }
    if back:
        kind["weight_rec"] = back.operator.matrix().toarray().astype(np.int32) << back.exponent
    if bias.any():
        kind["bias"] = bias if len(bias) > 1 or isinstance(operator, Conv) else np.repeat(bias, neurons.size)
    _put(group, **kind)
    same = {key: values[0] if len(np.unique(values)) == 1 else values for key, values in neuron.items()}
    _put(group.create_group("neuron"), type="CUBA", **same)


def _put(group: "h5py.Group", **values: Any) -> None:
    for key, value in values.items():
        group[key] = np.bytes_(value) if isinstance(value, str) else np.asarray(value)
