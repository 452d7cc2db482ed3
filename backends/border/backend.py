"""What a chip offers and what lowering gives back: everything that crosses the border, in types.

A chip is one package with one `Backend`, found by the entry point group `nrf.chips`:

    [project.entry-points."nrf.chips"]
    mychip = "my_package:BACKEND"

The package may live anywhere; ours use the same way in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.chip import Chip
from nrf.backends.border.recording import Recording
from nrf.backends.border.student import Student
from nrf.errors import InputError
from nrf.export.contract import Contract
from nrf.export.graph import Graph
from nrf.findings import Finding

Shape = tuple[int, ...]
Frames = NDArray[np.generic]  # (steps, *input shape), numbers
Clips = Sequence[NDArray[np.float32]]
WeightBits = Literal["auto", "8", "16"]


@dataclass(frozen=True)
class Absent:
    """Why a runtime cannot run here, and the command that would fix it (or nothing would)."""

    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; run: {self.remedy}" if self.remedy else self.reason


@dataclass(frozen=True)
class Runtime:
    """Something that runs a program."""

    name: str  # builtin | asynchronous | lava | loihi2 | sinabs | speck | ...
    device: Literal["simulation", "chip"] = "simulation"
    vendor: str = ""  # whose software it needs; empty for what is built in
    exact: bool = True  # False for asynchronous chips: compared on counts and on the task only
    options: tuple[str, ...] = ()  # fields of `RunOptions` that it obeys, beside `membranes`
    # what nobody documents; defaults first
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    absent: Callable[[], Absent | None] = lambda: None


@dataclass(frozen=True)
class RunOptions:
    """How to run a program; what a runtime does not obey (`Runtime.options`) is refused."""

    teacher: Recording | None = None  # teacher forcing: every population hears these spikes of its sources
    membranes: bool = False  # record those of every population; the host's are always there
    seed: int = 0  # order of events within a step, on asynchronous simulators and chips
    choices: Mapping[str, str] = field(default_factory=dict)  # of a `Runtime`; its defaults unless given
    repeats: int = 1  # how often a chip plays the frames; the last one is recorded
    timeout: float = 600.0  # seconds that a vendor's process may take
    device: str = "cpu"  # of a vendor's simulator
    board: str = ""  # which board, where there are several
    slow_clock: int | None = None  # Hz, of a chip's leak; one tick per step unless given

    def __post_init__(self) -> None:
        for key, least in (("seed", 0), ("repeats", 1), ("slow_clock", 1)):
            if (value := getattr(self, key)) is not None and value < least:
                raise InputError(f"{key} is {value}, expected at least {least}")


@dataclass(frozen=True, eq=False)
class LowerOptions:
    """How to lower a graph. Two lowerings with equal options make the same program."""

    calibration: Clips | None = field(default=None, repr=False)  # to choose scales on; else generated ones
    origin: Literal["given", "training data", "generated"] = "generated"  # of these clips
    approximate: bool = False  # also lower what the chip can only approximate
    format: str = "program"  # what it will be written as: a format may allow fewer numbers
    weights: WeightBits = "auto"  # bits of a weight, where two synapses can carry one


@dataclass(frozen=True)
class Memory:
    """One kind of memory of a core."""

    name: str
    used: int
    size: int


@dataclass(frozen=True)
class CoreUse:
    """Neurons `first` to `last` of a population on one core."""

    core: int
    population: str
    first: int
    last: int  # inclusive
    memories: tuple[Memory, ...]


@dataclass(frozen=True)
class Placement:
    """Which neurons are on which core, and how full the cores are."""

    cores: tuple[CoreUse, ...]
    available: int  # cores of a chip
    chips: int = 1
    totals: dict[str, int] = field(default_factory=dict)  # such as synapses, over all cores

    def of(self, population: str) -> list[CoreUse]:
        """Cores of one population."""
        return [core for core in self.cores if core.population == population]


@dataclass(frozen=True, eq=False)
class FanOut:
    """How many synapses a spike of each neuron of `source` meets in each core of `target`."""

    source: str  # a population, or the program's input
    target: str
    synapses: NDArray[np.int64]  # (cores of the target as in the placement, neurons of the source)


@dataclass(frozen=True)
class Loss:
    """What a population loses by the chip's numbers, on the calibration clips."""

    population: str
    rounding: str  # exact, measured, ...
    f1: float | None = None  # of its spikes, fed with the reference's; None where nothing was measured
    f1_together: float | None = None  # the same with all populations running freely
    membrane_rms: float | None = None  # volts, of a population that does not fire
    notes: dict[str, str] = field(default_factory=dict)  # what else there is to say about its integers


@dataclass(frozen=True)
class Lowered:
    """How a program came about."""

    placement: Placement
    losses: tuple[Loss, ...]
    calibration: str = ""  # which clips the numbers were chosen on
    figures: dict[str, float] = field(default_factory=dict)  # of the whole, such as pixels moved
    rewrites: tuple[Finding, ...] = ()  # exact changes of the graph that made the chip take it
    warnings: tuple[Finding, ...] = ()  # what was lowered, but poorly


class Program(Protocol):
    """What a chip would get: integers, placed. One file on disk; see `border.program`."""

    @property
    def target(self) -> str:
        """Name of the chip."""

    @property
    def contract(self) -> Contract:
        """The semantics that the integers answer to."""

    @property
    def input_shape(self) -> Shape:
        """Of the frames that it takes."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """What the host reads: the populations that outputs end in, or what the host makes of some."""

    @property
    def latencies(self) -> Mapping[str, int]:
        """Steps that the spikes of each population come later than the contract says."""

    @property
    def lowered(self) -> Lowered:
        """Placement, losses and calibration."""

    @property
    def checksum(self) -> str:
        """Over what the program computes, 16 hex digits."""

    def save(self, path: str | Path) -> None:
        """Write one file that NumPy alone can read."""


ChipT = TypeVar("ChipT", bound=Chip)
ProgramT = TypeVar("ProgramT", bound=Program)


@dataclass(frozen=True)
class Backend(Generic[ChipT, ProgramT]):
    """One chip: how to check, lower and run for it. Optional powers are fields that may be empty."""

    chip: type[ChipT]
    config: Traversable  # the TOML file that describes the chip
    check: Callable[[Graph, ChipT], list[Finding]]  # all findings of all rules
    lower: Callable[[Graph, ChipT, LowerOptions], ProgramT]  # refuses a graph with errors
    load: Callable[[str | Path], ProgramT]  # everything in the file is checked
    run: Callable[[ProgramT, Frames, str, RunOptions], Recording]  # on the runtime of that name
    session: Callable[[ProgramT], Callable[[Frames], Recording]]  # built-in simulator that keeps its state
    runtimes: Mapping[str, Runtime]  # one is "builtin", a simulator that is always there
    to_grid: Callable[[Graph, ChipT], Graph] | None = None  # parameters rounded to the chip's numbers
    fan_out: Callable[[ProgramT], Sequence[FanOut]] | None = None  # synapses, so that work can be counted
    formats: Mapping[str, Callable[[ProgramT, Path], None]] = field(default_factory=dict)  # vendors' files
    weights: tuple[WeightBits, ...] = ("auto",)  # of `LowerOptions` that mean something here
    approximates: bool = False  # whether `LowerOptions.approximate` means anything here
    floors: Callable[[ProgramT], Mapping[str, NDArray[np.float32]]] | None = None  # volts where v saturates
    student: Callable[[ChipT], Student] | None = None  # its own neuron, for `nrf tune`
