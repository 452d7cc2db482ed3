"""Neurons over time: leaky integrator, leaky integrate-and-fire, integrate-and-fire.

The equations, in `nrf.model.scan`, are those of Norse (LIBox and LIFBox cells) and of `nrf.export.contract`.

Every module takes the drive of all time steps at once, (T, B, C, H, W), and the membrane
potential that the steps before left (None at the start), and returns its output and the potential after the
last step.

Norse's cells step once and record every operation for the gradient. Here one scan does all steps, and one
hand-written backward pass undoes them: the same numbers (tests compare both with Norse's) in less time.
Norse 1.1.0's SuperSpike gradient ignores its steepness alpha; this one does not.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nrf.model.dynamics import Dynamics, Fire, Reset, numbers_of
from nrf.model.scan import Population, scan

Values = float | Sequence[float] | Tensor  # one for all channels, or one per channel


def _per_channel(values: Values) -> Tensor:
    """One number, or one per channel as (C, 1, 1) so that it meets maps (B, C, H, W)."""
    tensor = torch.as_tensor(values, dtype=torch.get_default_dtype())
    return tensor if tensor.ndim == 0 else tensor.reshape(-1, 1, 1)


class Neuron(nn.Module):
    """A population of any kind: drive and membrane potential in, output and membrane potential out."""

    _is_leaf_module = True  # nirtorch's tracer stops here
    spiking = False
    threshold: Tensor  # volts; of those that spike

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor | None]: ...

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Output over time (T, B, C, H, W), and the membrane potential after the last step."""
        raise NotImplementedError

    def ramp(self, drive: Tensor) -> Tensor:
        """What a constant drive ends in: roughly the firing rate; the rectified drive if nothing spikes."""
        return (drive / self.threshold).clamp(0, 1) if self.spiking else torch.relu(drive)

    def set_threshold(self, volts: float) -> None:
        """Change the threshold, and with it what is measured against it."""
        self.threshold.fill_(volts)


class LI(Neuron):
    """Leaky integrator: output is the membrane potential.

    >>> import torch
    >>> LI(tau=[0.002, 0.008])(torch.ones(50, 1, 2, 4, 4))[0].shape
    torch.Size([50, 1, 2, 4, 4])
    """

    dynamics = Dynamics(leaky=True, fires=False)
    log_steps: Tensor

    def __init__(self, tau: Values, dt: float = 1e-3, learn_tau: bool = False) -> None:
        super().__init__()
        self.dt = dt  # seconds per step
        log_steps = (_per_channel(tau) / dt).log()  # log, so that a gradient step keeps tau positive
        if learn_tau:
            self.log_steps = nn.Parameter(log_steps)
        else:
            self.register_buffer("log_steps", log_steps)
        self.register_buffer("threshold", torch.tensor(math.inf))

    @property
    def rate(self) -> Tensor:
        """dt / tau, at most 1."""
        return torch.exp(-self.log_steps).clamp(max=1.0)

    @property
    def tau(self) -> Tensor:
        """Time constants in seconds, one or one per channel."""
        tau = self.dt / self.rate.detach()
        return tau.flatten() if tau.ndim else tau

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Membrane potential over time (T, B, C, ...), and the membrane potential after the last step."""
        return scan(x, v, self.rate, self.threshold, self.dynamics)

    def population(self, v: Tensor | None) -> Population:
        """What a scan of several populations takes."""
        return Population(v, self.rate, numbers_of(self.threshold, self.dynamics))


class LIF(LI):
    """Leaky integrate-and-fire: output is spikes, the membrane potential is reset in the step that fires."""

    spiking = True

    def __init__(
        self,
        tau: Values,
        threshold: float = 1.0,
        dt: float = 1e-3,
        reset: Reset = "zero",
        alpha: float = 10.0,
        learn_tau: bool = False,
    ) -> None:
        super().__init__(tau, dt, learn_tau)
        self.threshold = torch.tensor(float(threshold))  # volts
        self.dynamics = Dynamics(leaky=True, fires=True, reset=reset, alpha=alpha)


class IF(Neuron):
    """Integrate-and-fire with a linear leak per channel and a floor: the neuron of Speck."""

    spiking = True
    leak: Tensor  # volts per step, negative to forget
    v_min: Tensor  # volts

    def __init__(
        self,
        threshold: float = 1.0,
        v_min: float | None = None,
        leak: Values = 0.0,
        dt: float = 1e-3,
        reset: Reset = "subtract",
        alpha: float = 10.0,
        fire: Fire = "gt",
    ) -> None:
        super().__init__()
        self.dt = dt  # seconds per step
        self.register_buffer("leak", _per_channel(leak))
        self.register_buffer("v_min", torch.tensor(-math.inf if v_min is None else v_min))
        self.register_buffer("threshold", torch.tensor(float(threshold)))
        self.dynamics = Dynamics(leaky=False, fires=True, reset=reset, alpha=alpha, fire=fire)

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Spikes over time (T, B, C, ...), and the membrane potential after the last step."""
        dynamics = replace(self.dynamics, v_min=self.v_min.item())
        return scan(x + self.leak, v, torch.ones_like(self.threshold), self.threshold, dynamics)

    def ramp(self, drive: Tensor) -> Tensor:
        """The firing rate under a constant drive."""
        return super().ramp(drive + self.leak)

    def set_threshold(self, volts: float) -> None:
        """Change the threshold; leak and floor keep their ratio to it."""
        ratio = volts / self.threshold
        self.leak.mul_(ratio)
        self.v_min.mul_(ratio)
        super().set_threshold(volts)


class ReLU(Neuron):
    """The stateless activation that the paper compares with. Has no counterpart in NIR."""

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, None]:
        """max(x, 0) and no state."""
        return torch.relu(x), None


class LIReLU(LI):
    """Leaky integrator, then max(v, 0): the paper's non-spiking model. Has no counterpart in NIR."""

    dynamics = Dynamics(leaky=True, fires=False, rectified=True)
