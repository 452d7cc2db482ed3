"""Sinks that write spikes and states to a file as they come; `Var.get()` would take 43 us per element."""

from typing import Any

import numpy as np
from lava.magma.core.decorator import implements, requires, tag
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyRefPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, RefPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol


class SpikeRecorder(AbstractProcess):  # type: ignore[misc]
    """Keeps (steps, 3, size) of int32 in `path`: spikes of a population after each step, the rest 0."""

    def __init__(self, *, size: int, steps: int, path: str) -> None:
        super().__init__(size=size, steps=steps, path=path)
        np.memmap(path, np.int32, "w+", shape=(steps, 3, size)).flush()
        self.s_in = InPort(shape=(size,))

    def listen(self, population: Any) -> None:
        """Connect to a population of LIF neurons."""
        population.s_out.connect(self.s_in)


class Recorder(AbstractProcess):  # type: ignore[misc]
    """The same with u and v after each step."""

    def __init__(self, *, size: int, steps: int, path: str) -> None:
        super().__init__(size=size, steps=steps, path=path)
        np.memmap(path, np.int32, "w+", shape=(steps, 3, size)).flush()
        self.s_in = InPort(shape=(size,))
        self.u = RefPort(shape=(size,))
        self.v = RefPort(shape=(size,))

    def listen(self, population: Any) -> None:
        """Connect to a population of LIF neurons."""
        population.s_out.connect(self.s_in)
        self.u.connect_var(population.u)
        self.v.connect_var(population.v)


class PyWriter(PyLoihiProcessModel):  # type: ignore[misc]
    """Writes spikes when they are sent."""

    s_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params: Any) -> None:
        super().__init__(proc_params)
        shape = (proc_params["steps"], 3, proc_params["size"])
        self.file = np.memmap(proc_params["path"], np.int32, "r+", shape=shape)

    def run_spk(self) -> None:
        """Receive the spikes of this step."""
        self.file[self.time_step - 1, 0] = self.s_in.recv()


@implements(proc=SpikeRecorder, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class PySpikeRecorder(PyWriter):
    """Nothing more."""


@implements(proc=Recorder, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class PyRecorder(PyWriter):
    """Also reads the states when the step is over."""

    u: PyRefPort = LavaPyType(PyRefPort.VEC_DENSE, np.int32)
    v: PyRefPort = LavaPyType(PyRefPort.VEC_DENSE, np.int32)

    def post_guard(self) -> bool:
        """Always look at the states."""
        return True

    def run_post_mgmt(self) -> None:
        """Read the states after this step."""
        self.file[self.time_step - 1, 1] = self.u.read()
        self.file[self.time_step - 1, 2] = self.v.read()
