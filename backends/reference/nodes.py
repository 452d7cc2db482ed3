"""What each NIR node does to a signal, in floating point: the equations behind the reference.

An operator takes a signal (T, *shape) and a state, and gives the signal that its targets see, the membrane if
it has one, and the state after the last step. T steps at once or one by one is the same computation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import nir
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nrf.export.contract import Contract
from nrf.export.graph import NEURONS

State = Any  # None before the first step
Result = tuple[Tensor, Tensor | None, State]
Operator = Callable[[Tensor, State], Result]
ToTensor = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Neuron:
    """Coefficients of a neuron node, each of the node's shape; None where a node has no such term."""

    leak: Tensor | None  # dt / tau_mem
    gain: Tensor  # r, or dt r without leak
    rest: Tensor  # v_leak, volts; also the first v
    threshold: Tensor | None = None  # volts
    reset: Tensor | None = None  # volts
    synapse: Tensor | None = None  # dt / tau_syn
    w_in: Tensor | None = None


def operator(node: nir.NIRNode, contract: Contract, device: str, dtype: torch.dtype) -> Operator:
    """The operator of a canonical node. Coefficients are made in float64 and rounded once."""

    def tensor(value: Any) -> Tensor:
        return torch.as_tensor(np.asarray(value, np.float64)).to(device, dtype)

    if isinstance(node, NEURONS):
        return partial(scan, neuron=neuron(node, contract, tensor), contract=contract)
    if isinstance(node, nir.Delay):
        steps = np.round(np.asarray(node.delay, np.float64) / (contract.dt or 1.0)).astype(np.int64)
        return partial(delayed, steps=torch.as_tensor(steps, device=device))
    function = stateless(node, tensor)
    return lambda x, state: (function(x), None, None)


def stateless(node: nir.NIRNode, tensor: ToTensor) -> Callable[[Tensor], Tensor]:
    """Nodes whose output depends on their input of the same step only."""
    if isinstance(node, nir.Input | nir.Output):
        return lambda x: x
    if isinstance(node, nir.Affine):
        weight, bias = tensor(node.weight), tensor(node.bias)
        if weight.ndim == 2:
            return lambda x: F.linear(x, weight, bias)
        return lambda x: (weight @ x.unsqueeze(-1)).squeeze(-1) + bias
    if isinstance(node, nir.Conv1d | nir.Conv2d):
        two = isinstance(node, nir.Conv2d)
        layout = torch.channels_last if two else torch.contiguous_format  # 3.6 times faster for 9x9
        return partial(
            F.conv2d if two else F.conv1d,
            weight=tensor(node.weight).contiguous(memory_format=layout),
            bias=tensor(node.bias),
            stride=node.stride,
            padding=node.padding,
            dilation=node.dilation,
            groups=node.groups,
        )
    if isinstance(node, nir.SumPool2d | nir.AvgPool2d):
        kernel, stride, padding = (v.tolist() for v in (node.kernel_size, node.stride, node.padding))
        divisor = 1 if isinstance(node, nir.SumPool2d) else None  # padding counts in the average
        return partial(
            F.avg_pool2d, kernel_size=kernel, stride=stride, padding=padding, divisor_override=divisor
        )
    if isinstance(node, nir.Flatten):
        return partial(torch.flatten, start_dim=node.start_dim + 1, end_dim=node.end_dim + 1)
    scale = tensor(node.scale)  # Scale is what remains
    return lambda x: x * scale


def neuron(node: nir.NIRNode, contract: Contract, tensor: ToTensor) -> Neuron:
    """Coefficients of a neuron node under a contract. Without time constants, a step is one unit of time."""
    dt = contract.dt or 1.0

    def rate(tau: Any) -> Tensor:
        return tensor(dt / np.asarray(tau, np.float64))

    if isinstance(node, nir.Threshold):
        return Neuron(None, torch.ones_like(tensor(node.threshold)), tensor(0.0), tensor(node.threshold))
    cuba = isinstance(node, nir.CubaLI | nir.CubaLIF)
    leaky = cuba or isinstance(node, nir.LI | nir.LIF)
    spiking = isinstance(node, nir.IF | nir.LIF | nir.CubaLIF)
    return Neuron(
        leak=rate(node.tau_mem if cuba else node.tau) if leaky else None,
        gain=tensor(node.r) if leaky else tensor(dt * np.asarray(node.r, np.float64)),
        rest=tensor(node.v_leak) if leaky else torch.zeros_like(tensor(node.r)),
        threshold=tensor(node.v_threshold) if spiking else None,
        reset=tensor(node.v_reset) if spiking else None,
        synapse=rate(node.tau_syn) if cuba else None,
        w_in=tensor(node.w_in) if cuba else None,
    )


def scan(x: Tensor, state: State, neuron: Neuron, contract: Contract) -> Result:
    """The neuron equations of `Contract`, step after step.

    Spiking neurons give spikes, the others their membrane. The membrane is that after reset. A Threshold has
    no memory: its membrane is its input.
    """
    if neuron.threshold is not None and neuron.reset is None:
        return fires(x, neuron.threshold, contract).to(x.dtype), x, None
    v, current = state or (neuron.rest.expand(x.shape[1:]), torch.zeros_like(x[0]))
    drive = x * neuron.w_in if neuron.w_in is not None else x * neuron.gain
    membrane, spikes = torch.empty_like(x), torch.zeros_like(x)
    for t, push in enumerate(drive):
        if neuron.synapse is not None:
            current = current + neuron.synapse * (push - current)
            push = neuron.gain * current
        v = v + push if neuron.leak is None else v + neuron.leak * ((neuron.rest - v) + push)
        if neuron.threshold is not None and neuron.reset is not None:
            v = v if contract.v_min is None else v.clamp(min=contract.v_min)
            z = fires(v, neuron.threshold, contract)
            spikes[t] = z
            v = torch.where(z, neuron.reset if contract.reset == "zero" else v - neuron.threshold, v)
        membrane[t] = v
    return (membrane if neuron.threshold is None else spikes), membrane, (v, current)


def fires(v: Tensor, threshold: Tensor, contract: Contract) -> Tensor:
    """The spike condition of the contract."""
    return v > threshold if contract.fire == "gt" else v >= threshold


def delayed(x: Tensor, state: State, steps: Tensor) -> Result:
    """y[t, n] = x[t - steps[n], n], with zeros before the first step."""
    shape, flat = x.shape, x.flatten(1)
    steps = steps.flatten()
    depth = int(steps.max())
    history = state if state is not None else flat.new_zeros(depth, flat.shape[1])
    whole = torch.cat([history, flat])
    rows = depth + torch.arange(len(flat), device=x.device)[:, None] - steps
    return whole.gather(0, rows).reshape(shape), None, whole[len(whole) - depth :]
