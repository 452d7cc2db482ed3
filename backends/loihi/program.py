"""A Loihi 2 program: integer neurons and synapses, and what the integers mean in volts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int32s
from nrf.backends.border import FanOut, Lowered, Placement, Shape
from nrf.backends.border.program import StoredProgram, load_program
from nrf.backends.loihi.chip import Bits
from nrf.backends.lowering.fan_out import placed_fan_out
from nrf.backends.lowering.operators import Conv, Operator
from nrf.backends.lowering.readout import HostReadout, check_readout
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.files import require_memory

Number = TypeVar("Number", bound=np.generic)
STATE, SPIKE = 64, 8  # bytes of memory per neuron, and per neuron and step of delay
PARAMETERS = ("du", "dv", "vth", "bias_mant", "bias_exp", "u0", "v0")


@dataclass(frozen=True)
class Neurons:
    """A population. Arrays hold one entry per group of consecutive neurons: per channel, per neuron, or one.

    v in volts = offset + integer / scale

    A population that `subtracts` is Lava's ATRLIF, see neuron.py: its integer is v - r, a spike takes off
    2 (vth << 6), and it rests below 0 so that it fires at its threshold.
    """

    shape: Shape
    du: Int32s  # -1 .. 4095; the chip adds 1
    dv: Int32s  # 0 .. 4096
    vth: Int32s  # 17 bit, in units of 64; 2^17 never fires
    bias_mant: Int32s  # 13 bit, signed
    bias_exp: Int32s  # 0 .. 7
    u0: Int32s  # current before the first step
    v0: Int32s  # membrane before the first step
    scale: NDArray[np.float64]  # integers per volt
    offset: NDArray[np.float64]  # volts at integer 0, the reset voltage
    latency: int = 0  # steps that its spikes come later than the contract says
    subtracts: bool = False  # resets by subtraction

    @property
    def size(self) -> int:
        """Number of neurons."""
        return prod(self.shape)

    @property
    def bias(self) -> Int32s:
        """mantissa << exponent."""
        return (self.bias_mant.astype(np.int64) << self.bias_exp).astype(np.int32)

    def each(self, values: NDArray[Number]) -> NDArray[Number]:
        """One value per neuron from one value per group, in the shape of the population."""
        return np.repeat(values, self.size // len(values)).reshape(self.shape)

    def safe_steps(self, bits: Bits) -> float:
        """Steps in which states that nothing resets stay within their bits, with a spike in every step.

        Without leak v grows by what every spike takes off, 2 (vth << 6); one of these is in the membrane.
        With a leak what was fired is forgotten, and states are as large as they were when calibrated.
        """
        if not self.subtracts or self.dv.min() > 0:
            return np.inf
        largest = 2 * int(self.vth[self.dv == 0].max()) << bits.shift
        return max(0, (bits.limit - 1) // largest - 1)

    def volts(self, v: NDArray[np.number]) -> NDArray[np.float32]:
        """Integers (steps, *shape) read back as volts."""
        return np.asarray(v / self.each(self.scale) + self.each(self.offset), dtype=np.float32)


@dataclass(frozen=True)
class Synapses:
    """a[target] += (weight @ spikes[source][t - 1 - delay]) << exponent; convolutions wrap at 24 bit."""

    source: str
    target: str
    operator: Operator  # with weights of 8 bit, signed
    exponent: int = 0  # -8 .. 7
    delay: int = 0  # steps on top of the one that every synapse takes

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True, eq=False, repr=False)
class LoihiProgram(StoredProgram):
    """What the chip would get. `input` is the name of the graph's input, `outputs` are populations, or what
    the host makes of some of them (`readout`).
    """

    name: str
    target: str
    bits: Bits
    contract: Contract
    input: str
    input_shape: Shape
    outputs: tuple[str, ...]
    neurons: dict[str, Neurons]
    synapses: tuple[Synapses, ...]
    readout: HostReadout | None = None  # what the host computes behind the populations
    lowered: Lowered = field(default_factory=lambda: Lowered(Placement((), 0), ()), repr=False)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Of all populations."""
        return {name: neurons.shape for name, neurons in self.neurons.items()}

    @property
    def latencies(self) -> Mapping[str, int]:
        """Steps from the contract's spikes to the chip's."""
        return {name: neurons.latency for name, neurons in self.neurons.items()}

    @cached_property
    def safe_steps(self) -> dict[str, int]:
        """Populations that are sure to stay within their bits for so many steps only; see `Neurons`."""
        steps = {name: neurons.safe_steps(self.bits) for name, neurons in self.neurons.items()}
        return {name: int(count) for name, count in steps.items() if np.isfinite(count)}

    @property
    def read(self) -> tuple[str, ...]:
        """Populations that the host reads."""
        sources = (*self.outputs, *(self.readout.sources if self.readout else ()))
        return tuple(name for name in dict.fromkeys(sources) if name in self.neurons)

    def fires(self, name: str) -> bool:
        """False for a population that is only read as a membrane."""
        return name in self._firing

    @cached_property
    def _firing(self) -> set[str]:
        return {name for name, neurons in self.neurons.items() if np.any(neurons.vth < self.bits.never)}

    def into(self, target: str) -> list[Synapses]:
        """Synapses that end in `target`."""
        return [synapses for synapses in self.synapses if synapses.target == target]


def fan_outs(program: LoihiProgram) -> list[FanOut]:
    """All synapses; a weight that is carried by two counts twice."""
    placement = program.lowered.placement
    return [placed_fan_out(each.source, each.target, each.operator, placement) for each in program.synapses]


def floors(program: LoihiProgram) -> dict[str, NDArray[np.float32]]:
    """Volts at which the membranes of each population saturate; of ATRLIF two states do, so it has none."""
    plain = {name: neurons for name, neurons in program.neurons.items() if not neurons.subtracts}
    return {
        name: neurons.volts(np.full(neurons.shape, 1 - program.bits.limit)) for name, neurons in plain.items()
    }


def load(path: str | Path) -> LoihiProgram:
    """Read what `LoihiProgram.save` wrote."""
    return load_program(path, LoihiProgram, check_program)


def check_program(program: LoihiProgram) -> None:
    """Refuse a program that would compute something else than it says, or write outside its arrays."""
    sizes = {program.input: prod(program.input_shape)}
    if min(program.input_shape, default=0) < 1:
        raise InputError(f"its input has shape {program.input_shape}, expected sides of at least 1")
    for name, neurons in program.neurons.items():
        _check_neurons(name, neurons, program.bits)
        sizes[name] = neurons.size
    remembered = sum(sizes.values()) * STATE
    for synapses in program.synapses:
        _check_synapses(synapses, sizes, program.bits)
        remembered += sizes[synapses.source] * (2 + synapses.delay) * SPIKE
    require_memory("the program", remembered, "its neurons and delays")
    check_readout(program, program.shapes)


def _check_neurons(name: str, neurons: Neurons, bits: Bits) -> None:
    where = f"node '{name}'"
    if min(neurons.shape, default=0) < 1 or neurons.size > 2**31:
        raise InputError(
            f"{where}: shape {neurons.shape}, expected sides of at least 1, at most 2^31 neurons"
        )
    lengths = {len(getattr(neurons, key)) for key in (*PARAMETERS, "scale", "offset")}
    if len(lengths) != 1 or 0 in lengths or neurons.size % lengths.pop():
        raise InputError(f"{where}: its parameters are not one per group of its {neurons.size} neurons")
    limit = bits.limit - 1
    ranges = {
        "du": (-1, bits.unity - 1), "dv": (0, bits.unity), "vth": (0, bits.never),
        "bias_mant": (-bits.largest_bias - 1, bits.largest_bias), "bias_exp": (0, 2**bits.bias_exponent - 1),
        "u0": (-limit, limit), "v0": (-limit, limit), "latency": (-1, 2**31),
    }  # fmt: skip
    for key, (low, high) in ranges.items():
        values = np.asarray(getattr(neurons, key))
        if values.ndim > 1 or values.min() < low or values.max() > high:
            raise InputError(f"{where}: {key} is {values.min()} to {values.max()}, expected {low} to {high}")
    if not np.all(neurons.scale > 0) or not np.all(np.isfinite(neurons.scale + neurons.offset)):
        raise InputError(f"{where}: scale and offset must be finite, the scale above 0")


def _check_synapses(synapses: Synapses, sizes: Mapping[str, int], bits: Bits) -> None:
    where, operator = f"synapses {synapses.name}", synapses.operator
    if synapses.source not in sizes or synapses.target not in sizes:
        raise InputError(f"{where}: there is no such population")
    ends = 2 ** (bits.weight_exponent - 1)
    if not -ends <= synapses.exponent < ends or not 0 <= synapses.delay < 2**16:
        raise InputError(f"{where}: exponent {synapses.exponent} or delay {synapses.delay} is out of range")
    if isinstance(operator, Conv):
        if operator.weight.dtype != np.int8 or operator.weight.ndim != 4 or not operator.is_sound:
            raise InputError(f"{where}: its kernel {operator.weight.shape} does not fit its geometry")
        shape = prod(operator.output_shape), prod(operator.input_shape)
        weights = operator.weight
    else:
        matrix = operator.matrix()
        shape, weights = matrix.shape, matrix.data
        if weights.dtype != np.int8:
            raise InputError(f"{where}: weights are {weights.dtype}, expected int8")
    if shape != (sizes[synapses.target], sizes[synapses.source]):
        ends = f"{sizes[synapses.source]} to {sizes[synapses.target]}"
        raise InputError(f"{where}: weights lead from {shape[1]} to {shape[0]} neurons, expected {ends}")
    if weights.max(initial=0) > bits.largest_weight or weights.min(initial=0) < -bits.largest_weight - 1:
        raise InputError(f"{where}: weights beyond {bits.weight} bit")
