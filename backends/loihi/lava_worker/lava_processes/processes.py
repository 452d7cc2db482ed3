"""What Lava's own processes cannot do: record without `Var.get()`, which takes 43 us per element, and delay
or shift what goes to a synapse.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from lava.magma.core.decorator import implements, requires, tag
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort, PyRefPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort, RefPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol


def on_cpu(process: type) -> Callable[[type], type]:
    """Marks the model of a process beside Lava's fixed-point models."""
    of_process, on = implements(proc=process, protocol=LoihiProtocol), requires(CPU)
    return lambda model: of_process(on(tag("fixed_pt")(model)))


class Recorder(AbstractProcess):  # type: ignore[misc]
    """Keeps (steps, 4, size) of int32 in `path`: spikes, u, v and r after each step (0 without `states`).

    ATRLIF calls its current i; LIF has no r.
    """

    def __init__(self, population: Any, *, steps: int, path: str, states: bool) -> None:
        size = population.s_out.size
        subtracts = hasattr(population, "r")
        super().__init__(shape=(steps, 4, size), path=path, states=states, subtracts=subtracts)
        np.memmap(path, np.int32, "w+", shape=(steps, 4, size)).flush()
        self.s_in, self.u, self.v = InPort(shape=(size,)), RefPort(shape=(size,)), RefPort(shape=(size,))
        self.r = RefPort(shape=(size,))
        population.s_out.connect(self.s_in)
        if states:
            self.u.connect_var(population.i if subtracts else population.u)
            self.v.connect_var(population.v)
            if subtracts:
                self.r.connect_var(population.r)


@on_cpu(Recorder)
class PyRecorder(PyLoihiProcessModel):  # type: ignore[misc]
    """Writes spikes when they are sent, and reads the states when the step is over."""

    s_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)
    u: PyRefPort = LavaPyType(PyRefPort.VEC_DENSE, np.int32)
    v: PyRefPort = LavaPyType(PyRefPort.VEC_DENSE, np.int32)
    r: PyRefPort = LavaPyType(PyRefPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params: Any) -> None:
        super().__init__(proc_params)
        self.file = np.memmap(proc_params["path"], np.int32, "r+", shape=proc_params["shape"])

    def run_spk(self) -> None:
        """Receive the spikes of this step."""
        self.file[self.time_step - 1, 0] = self.s_in.recv()

    def post_guard(self) -> bool:
        """Whether to look at the states."""
        return bool(self.proc_params["states"])

    def run_post_mgmt(self) -> None:
        """Read the states after this step."""
        self.file[self.time_step - 1, 1] = self.u.read()
        self.file[self.time_step - 1, 2] = self.v.read()
        if self.proc_params["subtracts"]:
            self.file[self.time_step - 1, 3] = self.r.read()


class Relay(AbstractProcess):  # type: ignore[misc]
    """s_out[t] = s_in[t - steps] >> bits, rounded down; zero before."""

    def __init__(self, *, size: int, steps: int = 0, bits: int = 0) -> None:
        super().__init__(size=size, steps=steps, bits=bits)
        self.s_in = InPort(shape=(size,))
        self.s_out = OutPort(shape=(size,))


@on_cpu(Relay)
class PyRelay(PyLoihiProcessModel):  # type: ignore[misc]
    """A ring of as many rows as steps. Delays send before they receive, so that no loop waits for ever."""

    s_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32)

    def __init__(self, proc_params: Any) -> None:
        super().__init__(proc_params)
        self.ring = np.zeros((proc_params["steps"], proc_params["size"]), np.int32)

    def run_spk(self) -> None:
        """One step."""
        bits = self.proc_params["bits"]
        if not len(self.ring):
            self.s_out.send(np.right_shift(self.s_in.recv(), bits))
            return
        row = (self.time_step - 1) % len(self.ring)
        self.s_out.send(np.right_shift(self.ring[row], bits))
        self.ring[row] = self.s_in.recv()
