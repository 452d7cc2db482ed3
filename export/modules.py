"""The node map of the exporter: what each torch, Norse and nrf module is in NIR.

Seconds and volts throughout. Rates are turned into time constants in float64, so that dt / tau gives back the
module's own number. What NIR cannot say is refused with the reason, never approximated.
"""

from collections.abc import Callable
from typing import Any

import nir
import norse.torch as norse
import numpy as np
import torch
from norse.torch.functional.reset import reset_subtract, reset_value
from numpy.typing import NDArray
from torch import nn

from nrf.export.contract import Contract
from nrf.model import network, neurons

Convert = Callable[[Any, Contract], nir.NIRNode | None]


class Refused(Exception):
    """A module that NIR cannot say; the text is the reason."""


def convert(module: nn.Module, contract: Contract) -> nir.NIRNode | None:
    """The node of a module, or None where it does nothing; raises Refused with the reason."""
    for kind in type(module).__mro__:
        if kind in REASONS:
            raise Refused(REASONS[kind])
        if kind in MODULES:
            if type(module).forward is not getattr(kind, "forward"):  # noqa: B009
                raise Refused(f"it changes what {kind.__name__} computes")
            return MODULES[kind](module, contract)
    raise Refused("the exporter knows no NIR node for it")


def known(module: nn.Module) -> bool:
    """Whether the tracer stops at a module: it has a node, or a reason why not."""
    return any(kind in MODULES or kind in REASONS for kind in type(module).__mro__)


def numbers(value: Any) -> NDArray[np.float64]:
    """A tensor or number as float64."""
    return torch.as_tensor(value).detach().cpu().double().numpy()


def weights(value: torch.Tensor) -> NDArray[Any]:
    """A tensor as it is."""
    return value.detach().cpu().contiguous().numpy()


def linear(module: nn.Linear, contract: Contract) -> nir.NIRNode:
    """W x + b."""
    if module.bias is None:
        return nir.Linear(weights(module.weight))
    return nir.Affine(weights(module.weight), weights(module.bias))


def convolution(module: nn.Conv1d | nn.Conv2d, contract: Contract) -> nir.NIRNode:
    """Cross-correlation, zeros at the border."""
    if module.padding_mode != "zeros":
        raise Refused(f"NIR pads with zeros only, not '{module.padding_mode}'")
    weight = weights(module.effective_weight if isinstance(module, network.Conv) else module.weight)
    bias = weights(module.bias) if module.bias is not None else np.zeros(len(weight), weight.dtype)
    if isinstance(module, nn.Conv2d):
        return nir.Conv2d(None, weight, module.stride, module.padding, module.dilation, module.groups, bias)
    padding = module.padding if isinstance(module.padding, str) else module.padding[0]
    return nir.Conv1d(None, weight, module.stride[0], padding, module.dilation[0], module.groups, bias)


def pooling(module: nn.AvgPool2d, contract: Contract) -> nir.NIRNode:
    """Average, or sum where the divisor is 1."""
    kernel, stride, padding = (
        np.broadcast_to(v, 2).copy() for v in (module.kernel_size, module.stride, module.padding)
    )
    if module.ceil_mode or (padding.any() and not module.count_include_pad):
        raise Refused(
            "NIR pools whole windows and counts the padding; ceil_mode and count_include_pad do not"
        )
    if module.divisor_override == 1:
        return nir.SumPool2d(kernel, stride, padding)
    if module.divisor_override not in (None, kernel.prod()):
        raise Refused(f"NIR divides by the window's size, not by {module.divisor_override}")
    return nir.AvgPool2d(kernel, stride, padding)


def flatten(module: nn.Flatten, contract: Contract) -> nir.NIRNode:
    """NIR counts axes without the batch."""
    if module.start_dim == 0:
        raise Refused("it flattens the batch as well; use start_dim=1")
    start = module.start_dim - 1 if module.start_dim > 0 else module.start_dim
    end = module.end_dim - 1 if module.end_dim > 0 else module.end_dim
    return nir.Flatten({"input": None}, start, end)


def nothing(module: nn.Module, contract: Contract) -> None:
    """Identity, and dropout at rest."""
    if isinstance(module, nn.Dropout | nn.Dropout2d) and module.training:
        raise Refused("it drops at random while training; call .eval() first")


def lif(module: neurons.LIF, contract: Contract) -> nir.NIRNode:
    """Our leaky integrate-and-fire neuron."""
    _agrees("dt", module.dt, contract.dt)
    _agrees("reset", module.dynamics.reset, contract.reset)
    _agrees("fire", module.dynamics.fire, contract.fire)
    tau = module.dt / numbers(module.rate)
    zero = np.zeros_like(tau)
    return nir.LIF(tau, np.ones_like(tau), zero, numbers(module.threshold) + zero, zero)


def li(module: neurons.LI, contract: Contract) -> nir.NIRNode:
    """Our leaky integrator."""
    _agrees("dt", module.dt, contract.dt)
    tau = module.dt / numbers(module.rate)
    return nir.LI(tau, np.ones_like(tau), np.zeros_like(tau))


def integrate_and_fire(module: neurons.IF, contract: Contract) -> nir.NIRNode:
    """Our integrate-and-fire neuron. Its linear leak is a constant input: a bias, which NIR can say.

    v <- v + x + leak  =  v + dt r (x + leak)  with r = 1/dt

    A graph has one floor: where a module has another, its volts are scaled so that the floors agree.
    """
    _agrees("dt", module.dt, contract.dt)
    _agrees("reset", module.dynamics.reset, contract.reset)
    _agrees("fire", module.dynamics.fire, contract.fire)
    floor, lowest = float(module.v_min), -np.inf if contract.v_min is None else contract.v_min
    scale = 1.0 if floor == lowest else lowest / floor if floor else 0.0
    if not 0 < scale < np.inf:
        raise Refused(f"its floor v_min is {floor:g}, the contract says {contract.v_min}")
    leak = numbers(module.leak)
    zero = np.zeros_like(leak)
    neuron = nir.IF(scale / module.dt + zero, numbers(module.threshold) * scale + zero, zero)
    return neuron if not leak.any() else Biased(neuron, leak)


class Biased(nir.NIRNode):  # type: ignore[misc]
    """A neuron with a constant input, to be added to the bias of the linear node before it."""

    def __init__(self, neuron: nir.NIRNode, bias: NDArray[np.float64]) -> None:
        self.neuron, self.bias = neuron, bias


def lif_box(module: Any, contract: Contract) -> nir.NIRNode:
    """Norse's LIF without current."""
    p = _norse(module, contract, "tau_mem_inv", "v_leak", "v_th", "v_reset")
    return nir.LIF(1 / p[0], np.ones_like(p[0]), *p[1:])


def li_box(module: Any, contract: Contract) -> nir.NIRNode:
    """Norse's LI without current."""
    p = _norse(module, contract, "tau_mem_inv", "v_leak")
    return nir.LI(1 / p[0], np.ones_like(p[0]), p[1])


def cuba_lif(module: Any, contract: Contract) -> nir.NIRNode:
    """Norse's LIF. Its current jumps by x, where NIR's by dt/tau_syn w_in x: so w_in = tau_syn/dt."""
    p = _norse(module, contract, "tau_syn_inv", "tau_mem_inv", "v_leak", "v_th", "v_reset")
    w_in = 1 / p[0] / module.dt
    return nir.CubaLIF(1 / p[0], 1 / p[1], np.ones_like(p[0]), *p[2:], w_in=w_in)


def cuba_li(module: Any, contract: Contract) -> nir.NIRNode:
    """Norse's LI; w_in as in `cuba_lif`."""
    p = _norse(module, contract, "tau_syn_inv", "tau_mem_inv", "v_leak")
    return nir.CubaLI(1 / p[0], 1 / p[1], np.ones_like(p[0]), p[2], w_in=1 / p[0] / module.dt)


def recurrent_cuba_lif(module: Any, contract: Contract) -> nir.NIRGraph:
    """Norse's recurrent LIF: a sub-graph whose neuron feeds itself through a matrix, one step later."""
    size = np.array([module.hidden_size])
    if module.autapses is False:
        rec = module.recurrent_weights.detach().clone().fill_diagonal_(0.0)
    else:
        rec = module.recurrent_weights
    return nir.NIRGraph(
        {
            "input": nir.Input(np.array([module.input_size])),
            "w_in": nir.Linear(weights(module.input_weights)),
            "lif": cuba_lif(module, contract),
            "w_rec": nir.Linear(weights(rec)),
            "output": nir.Output(size),
        },
        [("input", "w_in"), ("w_in", "lif"), ("lif", "w_rec"), ("w_rec", "lif"), ("lif", "output")],
        type_check=False,
    )


def iaf(module: Any, contract: Contract) -> nir.NIRNode:
    """Norse's integrate-and-fire: v <- v + x, so r = 1/dt."""
    threshold, reset = _norse(module, contract, "v_th", "v_reset")
    if reset.any():
        raise Refused("it starts at v_reset, NIR's IF at 0; only v_reset = 0 is the same")
    return nir.IF(np.ones_like(threshold) / (contract.dt or 1.0), threshold, reset)


def lifted(module: Any, contract: Contract) -> nir.NIRNode | None:
    """Norse's Lift applies a module to every step, as NIR does anyway."""
    return convert(module.lifted_module, contract)


def _norse(module: Any, contract: Contract, *keys: str) -> list[NDArray[np.float64]]:
    """Parameters of a Norse module, broadcast to one shape."""
    if "tau_mem_inv" in keys:
        _agrees("dt", module.dt, contract.dt)
    if "v_th" in keys:
        names = {reset_value: "zero", reset_subtract: "subtract"}
        _agrees("fire", "gt", contract.fire)
        _agrees("reset", names.get(getattr(module.p, "reset_method", reset_value), "own"), contract.reset)
    values = np.broadcast_arrays(*(numbers(getattr(module.p, key)) for key in keys))
    return [np.array(value) for value in values]


def _agrees(key: str, stated: Any, expected: Any) -> None:
    """A graph has one contract for all its nodes."""
    if stated != expected:
        raise Refused(f"its {key} is {stated}, the contract says {expected}")


MODULES: dict[type, Convert] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.AvgPool2d: pooling,
    nn.Flatten: flatten,
    nn.Identity: nothing,
    nn.Dropout: nothing,
    nn.Dropout2d: nothing,
    network.Conv: convolution,
    network.AvgPool: pooling,
    neurons.LIF: lif,
    neurons.LI: li,
    neurons.IF: integrate_and_fire,
    norse.LIFBoxCell: lif_box,
    norse.LIBoxCell: li_box,
    norse.LIFCell: cuba_lif,
    norse.LIF: cuba_lif,
    norse.LICell: cuba_li,
    norse.LI: cuba_li,
    norse.IAFCell: iaf,
    norse.IAF: iaf,
    norse.LIFRecurrentCell: recurrent_cuba_lif,
    norse.LIFRecurrent: recurrent_cuba_lif,
    norse.Lift: lifted,
}
REASONS: dict[type, str] = {
    nn.ReLU: "NIR has no ReLU; train with spiking neurons",
    neurons.ReLU: "NIR has no ReLU; train with spiking neurons",
    neurons.LIReLU: "NIR has no ReLU, which follows this leaky integrator; train with spiking neurons",
    nn.Softmax: "NIR has no softmax; leave the readout to the contract",
    nn.LogSoftmax: "NIR has no softmax; leave the readout to the contract",
    nn.MaxPool1d: "NIR has no max-pooling; use average pooling",
    nn.MaxPool2d: "NIR has no max-pooling; use average pooling",
    nn.modules.batchnorm._BatchNorm: "NIR has no batch normalisation; fold it into the layer before",
    nn.modules.conv._ConvTransposeNd: "NIR has no transposed convolution",
}
