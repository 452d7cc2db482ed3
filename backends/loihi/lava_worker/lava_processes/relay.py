"""What Lava's own processes cannot say: a delay in front of any synapse, and a shift behind a convolution.

Both are relays. `Shift` takes no time; `Delay` sends before it receives, so that loops do not wait for ever.
"""

from typing import Any

import numpy as np
from lava.magma.core.decorator import implements, requires, tag
from lava.magma.core.model.py.model import PyLoihiProcessModel
from lava.magma.core.model.py.ports import PyInPort, PyOutPort
from lava.magma.core.model.py.type import LavaPyType
from lava.magma.core.process.ports.ports import InPort, OutPort
from lava.magma.core.process.process import AbstractProcess
from lava.magma.core.process.variable import Var
from lava.magma.core.resources import CPU
from lava.magma.core.sync.protocols.loihi_protocol import LoihiProtocol


class Delay(AbstractProcess):  # type: ignore[misc]
    """s_out[t] = s_in[t - steps]; zero before."""

    def __init__(self, *, size: int, steps: int) -> None:
        super().__init__(size=size, steps=steps)
        self.s_in = InPort(shape=(size,))
        self.s_out = OutPort(shape=(size,))
        self.ring = Var(shape=(steps, size), init=0)


@implements(proc=Delay, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class PyDelay(PyLoihiProcessModel):  # type: ignore[misc]
    """A ring of as many rows as steps."""

    s_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)
    s_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32)
    ring: Any = LavaPyType(np.ndarray, np.int32)

    def run_spk(self) -> None:
        """One step."""
        row = (self.time_step - 1) % len(self.ring)
        self.s_out.send(self.ring[row])
        self.ring[row] = self.s_in.recv()


class Shift(AbstractProcess):  # type: ignore[misc]
    """a_out[t] = a_in[t] >> bits, rounded down."""

    def __init__(self, *, size: int, bits: int) -> None:
        super().__init__(size=size, bits=bits)
        self.a_in = InPort(shape=(size,))
        self.a_out = OutPort(shape=(size,))


@implements(proc=Shift, protocol=LoihiProtocol)
@requires(CPU)
@tag("fixed_pt")
class PyShift(PyLoihiProcessModel):  # type: ignore[misc]
    """Stateless."""

    a_in: PyInPort = LavaPyType(PyInPort.VEC_DENSE, np.int32)
    a_out: PyOutPort = LavaPyType(PyOutPort.VEC_DENSE, np.int32)

    def run_spk(self) -> None:
        """One step."""
        self.a_out.send(np.right_shift(self.a_in.recv(), self.proc_params["bits"]))
