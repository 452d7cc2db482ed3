"""The Speck program: what the nine cores would get, as integers, and how to read them back as volts.

<i>/weight   (out, in, k, k) int8        of the i-th core in `cores`, in the order of the graph
<i>/bias     (out,) int8                 added every step (every tick of the slow clock)
<i>/volts    (out,) float64              volts per integer
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.program import Arrays, checksum, load_program, save_program
from nrf.errors import InputError
from nrf.export.contract import Contract

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Source:
    """Where a core's input comes from, and the sum pooling on the way."""

    name: str  # a core's node, or the program's input
    pool: int = 1


@dataclass(frozen=True)
class Core:
    """One core: pooled sources, one kernel, one population.

    v <- v + sum of weights of arriving spikes (+ bias once per step)
    spike if v >= threshold, then v <- v - threshold, or v <- 0 with `zero_reset`
    v <- max(v, floor)
    """

    node: str  # the neurons' name in the graph
    core: int  # 0 to 8, on the chip
    sources: tuple[Source, ...]
    input_shape: Shape  # (channels, height, width) after pooling
    shape: Shape
    node_shape: tuple[int, ...]  # as in the graph
    stride: tuple[int, int]
    padding: tuple[int, int]
    threshold: int
    floor: int  # threshold_low
    zero_reset: bool
    weight: NDArray[np.int8] = field(repr=False)  # (out, in, k, k)
    bias: NDArray[np.int8] = field(repr=False)  # (out,)
    volts: NDArray[np.float64] = field(repr=False)  # (out,) volts per integer


@dataclass(frozen=True)
class SpeckProgram:
    """Integers for the chip, with the contract that they answer to."""

    target: str
    contract: Contract
    input_shape: Shape
    cores: tuple[Core, ...]  # topological order
    output: str  # node that the readout sees
    input: str = "input"  # as the graph calls it, so that no population can have the same name
    report: dict[str, Any] = field(default_factory=dict)  # how the numbers were chosen, what was lost

    def save(self, path: str | Path) -> None:
        """Write one file that NumPy alone can read."""
        save_program(path, self._header(), self._arrays())

    @property
    def checksum(self) -> str:
        """As stored in the file and in every recording."""
        from nrf.backends.border.program import VERSION

        return checksum({**self._header(), "version": VERSION}, self._arrays())

    def readers(self, source: str) -> list[tuple[int, int]]:
        """(index of the core, pooling) of everything that `source` feeds."""
        return [
            (index, entry.pool)
            for index, core in enumerate(self.cores)
            for entry in core.sources
            if entry.name == source
        ]

    def _header(self) -> dict[str, Any]:
        large = ("weight", "bias", "volts")
        cores = [
            {key: value for key, value in asdict(core).items() if key not in large} for core in self.cores
        ]
        return {
            "target": self.target,
            "contract": self.contract.to_json(),
            "input": self.input,
            "input_shape": list(self.input_shape),
            "output": self.output,
            "report": self.report,
            "cores": cores,
        }

    def _arrays(self) -> Arrays:
        return {
            f"{index}/{key}": getattr(core, key)
            for index, core in enumerate(self.cores)
            for key in ("weight", "bias", "volts")
        }


def load(path: str | Path) -> SpeckProgram:
    """Read a program file."""
    header, arrays = load_program(path)
    try:
        cores = tuple(
            Core(
                **{  # type: ignore[arg-type]
                    **{
                        key: tuple(value) if isinstance(value, list) else value
                        for key, value in entry.items()
                    },
                    "sources": tuple(Source(**source) for source in entry["sources"]),
                },
                weight=arrays[f"{index}/weight"],
                bias=arrays[f"{index}/bias"],
                volts=arrays[f"{index}/volts"],
            )
            for index, entry in enumerate(header["cores"])
        )
        channels, height, width = header["input_shape"]
        return SpeckProgram(
            target=header["target"],
            contract=Contract.from_json(header["contract"]),
            input_shape=(channels, height, width),
            cores=cores,
            output=header["output"],
            input=header["input"],
            report=header["report"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a Speck program ({error}); lower again") from error
