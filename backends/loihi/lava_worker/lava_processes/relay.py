"""What Lava's own processes cannot say: a delay in front of any synapse, and a shift behind a convolution."""

from typing import Any

import numpy as np
from lava.magma.core.decorator import implements, requires, tag
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol


class Relay(AbstractProcess):  # type: ignore[misc]
    """s_out[t] = s_in[t - steps] >> bits, rounded down; zero before."""

    def __init__(self, *, size: int, steps: int = 0, bits: int = 0) -> None:
        super().__init__(size=size, steps=steps, bits=bits)
        self.s_in = InPort(shape=(size,))
        self.s_out = OutPort(shape=(size,))


@implements(proc=Relay, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
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
