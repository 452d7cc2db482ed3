"""Neurons over time: leaky integrator, leaky integrate-and-fire, integrate-and-fire.

The equations are Norse's (LIBox and LIFBox cells) and those of `nrf.export.contract`, with x the drive:

    LI, LIF   m[t] = v[t-1] + dt/tau (x[t] - v[t-1])
    IF        m[t] = v[t-1] + x[t] + leak
    floor     m[t] = max(m[t], v_min)                       where v_min is given
    fire      z[t] = m[t] > threshold
    reset     v[t] = m[t] (1 - z[t])  or  v[t] = m[t] - threshold z[t]

Every module takes the drive of all time steps at once, (T, B, C, H, W), and the membrane that the steps
before left (None at the start), and returns its output and the membrane after the last step.

Norse's cells step once and record every operation for the gradient. Here one scan does all steps and one
hand-written backward pass undoes them: the same numbers (tests compare both with Norse's) in less time.
Norse 1.1.0's SuperSpike gradient ignores its steepness alpha; this one does not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from norse.torch.functional.leaky_integrator_box import LIBoxParameters
from norse.torch.functional.lif_box import LIFBoxParameters
from torch import Tensor, nn

Reset = Literal["zero", "subtract"]


@dataclass(frozen=True)
class Rule:
    """What a scan does apart from its tensors."""

    leaky: bool  # m = v + rate (x - v), else m = v + x
    fires: bool  # the output is spikes, else the membrane
    reset: Reset = "zero"
    v_min: float | None = None  # volts
    alpha: float = 10.0  # steepness of the surrogate gradient


class _Scan(torch.autograd.Function):
    """All time steps of one population, forward and backward. See the head of this file for the equations.

    The gradient of a spike is SuperSpike's, in units of the threshold so that it does not depend on the scale
    of the weights:  dz/dm = 1 / (threshold (1 + alpha |m/threshold - 1|)^2).
    It also flows through the reset, as in Norse.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, v: Tensor, rate: Tensor, threshold: Tensor, rule: Rule) -> Any:
        membrane = torch.empty_like(x)
        start = v
        for drive, m in zip(x, membrane, strict=True):
            if rule.leaky:
                torch.sub(drive, v, out=m)
                m.mul_(rate).add_(v)
            else:
                torch.add(drive, v, out=m)
            if rule.v_min is not None:
                m.clamp_(min=rule.v_min)
            v = _reset(m, threshold, rule) if rule.fires else m
        ctx.rule = rule
        ctx.save_for_backward(membrane, start, rate, threshold)
        output = (membrane > threshold).to(x.dtype) if rule.fires else membrane
        return output, v.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        from_output, carried = gradients
        membrane, start, rate, threshold = ctx.saved_tensors
        rule: Rule = ctx.rule
        to_x = torch.empty_like(membrane)
        to_rate = torch.zeros_like(rate)
        if rule.fires:
            slope = (
                (membrane / threshold - 1)
                .abs_()
                .mul_(rule.alpha)
                .add_(1)
                .square_()
                .mul_(threshold)
                .reciprocal_()
            )
        for t in reversed(range(len(membrane))):
            m = membrane[t]
            if rule.fires:
                kept = carried * (m <= threshold) if rule.reset == "zero" else carried
                removed = m if rule.reset == "zero" else threshold
                g = (from_output[t] - carried * removed).mul_(slope[t]).add_(kept)
            else:
                g = from_output[t] + carried
            if rule.v_min is not None:
                g = g * (m > rule.v_min)
            if ctx.needs_input_grad[2]:
                before = (
                    start
                    if t == 0
                    else _reset(membrane[t - 1], threshold, rule)
                    if rule.fires
                    else membrane[t - 1]
                )
                to_rate += (g * (m - before) / rate).sum_to_size(rate.shape)  # x - v = (m - v) / rate
            torch.mul(g, rate, out=to_x[t])
            carried = g - to_x[t] if rule.leaky else g
        return to_x, carried, to_rate, None, None


def _scan(x: Tensor, v: Tensor | None, rate: Tensor, threshold: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """Output over time and last membrane; from rest where v is None."""
    start = torch.zeros_like(x[0]) if v is None else v
    output, end = _Scan.apply(x, start, rate, threshold, rule)  # type: ignore[no-untyped-call]
    return output, end


def _reset(m: Tensor, threshold: Tensor, rule: Rule) -> Tensor:
    fired = m > threshold
    return m.masked_fill(fired, 0.0) if rule.reset == "zero" else torch.where(fired, m - threshold, m)


def _per_channel(values: float | Sequence[float] | Tensor) -> Tensor:
    """One number, or one per channel as (C, 1, 1) so that it meets maps (B, C, H, W)."""
    tensor = torch.as_tensor(values, dtype=torch.get_default_dtype())
    return tensor if tensor.ndim == 0 else tensor.reshape(-1, 1, 1)


class Neuron(nn.Module):
    """A population of any kind: drive over time and membrane in, output over time and membrane out."""

    _is_leaf_module = True  # nirtorch's tracer stops here

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Output over time (T, B, C, H, W), and the membrane after the last step."""
        raise NotImplementedError


class LI(Neuron):
    """Leaky integrator: output is the membrane.

    >>> LI(tau=[0.002, 0.008])(torch.ones(50, 1, 2, 4, 4))[0].shape
    torch.Size([50, 1, 2, 4, 4])
    """

    rule = Rule(leaky=True, fires=False)
    log_steps: Tensor
    threshold: Tensor

    def __init__(
        self, tau: float | Sequence[float] | Tensor, dt: float = 1e-3, learn_tau: bool = False
    ) -> None:
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
        return (
            (self.dt / self.rate.detach()).flatten() if self.log_steps.ndim else self.dt / self.rate.detach()
        )

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Membrane over time (T, B, C, ...), and the membrane after the last step."""
        return _scan(x, v, self.rate, self.threshold, self.rule)

    def norse(self) -> LIBoxParameters:
        """The same neuron in Norse's words, for `norse.torch.LIBoxCell`."""
        return LIBoxParameters(tau_mem_inv=self.rate.detach() / self.dt)


class LIF(LI):
    """Leaky integrate-and-fire: output is spikes, the membrane is reset in the step that fires."""

    def __init__(
        self,
        tau: float | Sequence[float] | Tensor,
        threshold: float = 1.0,
        dt: float = 1e-3,
        reset: Reset = "zero",
        alpha: float = 10.0,
        learn_tau: bool = False,
    ) -> None:
        super().__init__(tau, dt, learn_tau)
        self.threshold = torch.tensor(float(threshold))  # volts
        self.rule = Rule(leaky=True, fires=True, reset=reset, alpha=alpha)

    def norse(self) -> LIFBoxParameters:
        """The same neuron in Norse's words, for `norse.torch.LIFBoxCell`."""
        from norse.torch.functional.reset import reset_subtract, reset_value

        return LIFBoxParameters(
            tau_mem_inv=self.rate.detach() / self.dt,
            v_th=self.threshold,
            alpha=torch.tensor(self.rule.alpha),
            reset_method=reset_value if self.rule.reset == "zero" else reset_subtract,
        )


class IF(Neuron):
    """Integrate-and-fire with a linear leak per channel and a floor: the neuron of Speck."""

    leak: Tensor
    rate: Tensor
    threshold: Tensor

    def __init__(
        self,
        threshold: float = 1.0,
        v_min: float | None = None,
        leak: float | Sequence[float] | Tensor = 0.0,
        dt: float = 1e-3,
        reset: Reset = "subtract",
        alpha: float = 10.0,
    ) -> None:
        super().__init__()
        self.dt = dt  # seconds per step
        self.register_buffer("leak", _per_channel(leak))  # volts per step, negative to forget
        self.register_buffer("threshold", torch.tensor(float(threshold)))
        self.register_buffer("rate", torch.tensor(1.0))
        self.rule = Rule(leaky=False, fires=True, reset=reset, v_min=v_min, alpha=alpha)

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Spikes over time (T, B, C, ...), and the membrane after the last step."""
        return _scan(x + self.leak, v, self.rate, self.threshold, self.rule)


class ReLU(Neuron):
    """The stateless activation that the paper compares with. Has no counterpart in NIR."""

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, None]:
        """max(x, 0) and no state."""
        return torch.relu(x), None


class LIReLU(LI):
    """Leaky integrator, then max(v, 0): the paper's non-spiking model. Has no counterpart in NIR."""

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Rectified membrane over time, and the membrane itself after the last step."""
        membrane, v = super().forward(x, v)
        return torch.relu(membrane), v
