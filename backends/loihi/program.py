"""A Loihi 2 program: integer neurons and synapses, and what the integers mean in volts."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nrf.backends.border.program import VERSION, Arrays, checksum, load_program, save_program
from nrf.backends.loihi.neuron import NEVER, Integers
from nrf.backends.lowering.layers import Conv, Matrix, Operator
from nrf.errors import InputError
from nrf.export.contract import Contract

PARAMETERS = ("du", "dv", "vth", "bias_mant", "bias_exp", "u0", "v0")


@dataclass(frozen=True)
class Neurons:
    """A population. Arrays hold one entry per group of consecutive neurons: per channel, per neuron, or one.

    v in volts = offset + integer / scale
    """

    name: str
    shape: tuple[int, ...]
    du: Integers  # -1 .. 4095; the chip adds 1
    dv: Integers  # 0 .. 4096
    vth: Integers  # 17 bit, in units of 64; 2^17 never fires
    bias_mant: Integers  # 13 bit, signed
    bias_exp: Integers  # 0 .. 7
    u0: Integers  # current before the first step
    v0: Integers  # membrane before the first step
    scale: NDArray[np.float64]  # integers per volt
    offset: NDArray[np.float64]  # volts at integer 0, the reset voltage
    latency: int = 0  # steps that its spikes come later than the contract says

    @property
    def size(self) -> int:
        """Number of neurons."""
        return int(np.prod(self.shape))

    @property
    def fires(self) -> bool:
        """False for an output that is only read as a membrane."""
        return bool(np.any(self.vth < NEVER))

    def each(self, values: NDArray[Any]) -> NDArray[Any]:
        """One value per neuron from one value per group, in the shape of the population."""
        return np.repeat(values, self.size // len(values)).reshape(self.shape)

    def volts(self, v: NDArray[Any]) -> NDArray[np.float32]:
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
    path: tuple[str, ...] = ()  # nodes of the graph that it stands for

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True)
class LoihiProgram:
    """What the chip would get. `input` is the name of the graph's input, `output` a population."""

    name: str
    target: str
    contract: Contract
    input: str
    input_shape: tuple[int, ...]
    output: str
    neurons: dict[str, Neurons]
    synapses: tuple[Synapses, ...]
    report: dict[str, Any] = field(default_factory=dict)  # what lowering measured, and the placement

    @cached_property
    def checksum(self) -> str:
        """Of the file that `save` writes."""
        return checksum(*self._pack())

    @property
    def output_is_membrane(self) -> bool:
        """Whether the output's volts are read: the contract says so, or it has no spikes to read."""
        return self.contract.output == "membrane" or not self.neurons[self.output].fires

    @property
    def latency(self) -> int:
        """Steps from the contract's output to the chip's."""
        return self.neurons[self.output].latency

    def into(self, target: str) -> list[Synapses]:
        """Synapses that end in `target`."""
        return [synapses for synapses in self.synapses if synapses.target == target]

    def save(self, path: str | Path) -> None:
        """Write one file that NumPy alone can read."""
        header, arrays = self._pack()
        save_program(path, {k: v for k, v in header.items() if k != "version"}, arrays)

    def _pack(self) -> tuple[dict[str, Any], Arrays]:
        arrays: Arrays = {}
        neurons, synapses = [], []
        for number, group in enumerate(self.neurons.values()):
            arrays |= {f"neurons/{number}/{key}": getattr(group, key) for key in PARAMETERS}
            arrays |= {f"neurons/{number}/{key}": getattr(group, key) for key in ("scale", "offset")}
            neurons.append({"name": group.name, "shape": list(group.shape), "latency": group.latency})
        for number, one in enumerate(self.synapses):
            entry = {
                "source": one.source,
                "target": one.target,
                "exponent": one.exponent,
                "delay": one.delay,
                "path": list(one.path),
            }
            operator = one.operator
            if isinstance(operator, Conv):
                arrays[f"synapses/{number}/kernel"] = operator.weight.astype(np.int8)
                entry |= {
                    "kind": "conv",
                    "input_shape": list(operator.input_shape),
                    "groups": operator.groups,
                }
                entry |= {key: list(getattr(operator, key)) for key in ("stride", "padding", "dilation")}
            else:
                csr = sparse.csr_array(operator.weight)
                arrays[f"synapses/{number}/data"] = csr.data.astype(np.int8)
                arrays[f"synapses/{number}/indices"] = csr.indices.astype(np.int32)
                arrays[f"synapses/{number}/indptr"] = csr.indptr.astype(np.int32)
                entry |= {"kind": "matrix", "shape": [int(n) for n in csr.shape]}
            synapses.append(entry)
        header = {
            "version": VERSION,
            "target": self.target,
            "name": self.name,
            "contract": self.contract.to_json(),
            "input": self.input,
            "input_shape": list(self.input_shape),
            "output": self.output,
            "neurons": neurons,
            "synapses": synapses,
            "report": self.report,
        }
        return header, arrays


def load(path: str | Path) -> LoihiProgram:
    """Read what `LoihiProgram.save` wrote."""
    header, arrays = load_program(path)
    try:
        return LoihiProgram(
            name=header["name"],
            target=header["target"],
            contract=Contract.from_json(header["contract"]),
            input=header["input"],
            input_shape=tuple(header["input_shape"]),
            output=header["output"],
            neurons={
                entry["name"]: Neurons(
                    name=entry["name"],
                    shape=tuple(entry["shape"]),
                    latency=entry["latency"],
                    **{key: arrays[f"neurons/{n}/{key}"] for key in (*PARAMETERS, "scale", "offset")},
                )
                for n, entry in enumerate(header["neurons"])
            },
            synapses=tuple(
                Synapses(
                    entry["source"],
                    entry["target"],
                    _operator(
                        entry,
                        {k.split("/")[2]: v for k, v in arrays.items() if k.startswith(f"synapses/{n}/")},
                    ),
                    entry["exponent"],
                    entry["delay"],
                    tuple(entry["path"]),
                )
                for n, entry in enumerate(header["synapses"])
            ),
            report=header["report"],
        )
    except KeyError as error:
        raise InputError(f"{path}: not a program for Loihi 2, {error} is missing; lower again") from error


def _operator(entry: dict[str, Any], arrays: Arrays) -> Operator:
    if entry["kind"] == "matrix":
        parts = (arrays["data"], arrays["indices"], arrays["indptr"])
        return Matrix(sparse.csr_array(parts, shape=tuple(entry["shape"])))
    height_width: dict[Literal["stride", "padding", "dilation"], Any] = {
        key: tuple(entry[key]) for key in ("stride", "padding", "dilation")
    }
    channels, height, width = entry["input_shape"]
    return Conv(arrays["kernel"], (channels, height, width), **height_width, groups=entry["groups"])
