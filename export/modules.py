"""The node map of the exporter: what each torch, Norse and nrf module is in NIR.

Seconds and volts throughout. Rates are turned into time constants in float64, so that dt / tau gives back the
module's own number. What NIR cannot say is refused with the reason, never approximated.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import nir
import norse.torch as norse
import numpy as np
import torch
from norse.torch.functional.reset import reset_subtract, reset_value
from numpy.typing import NDArray
from torch import nn

from nrf.export.contract import Contract
from nrf.export.shape_inference import PARAMETERS
from nrf.model import layers, neurons

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
    weight = weights(module.effective_weight if isinstance(module, layers.Conv) else module.weight)
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
        raise Refused("NIR pools whole windows and counts padding; ceil_mode and count_include_pad do not")
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


def leaky(module: neurons.LI, contract: Contract) -> nir.NIRNode:
    """Our leaky integrator, with spikes or without."""
    _steps_as(contract, module)
    tau = module.dt / numbers(module.rate)
    one, zero = np.ones_like(tau), np.zeros_like(tau)
    if not module.dynamics.fires:
        return nir.LI(tau, one, zero)
    return nir.LIF(tau, one, zero, numbers(module.threshold) + zero, zero)


def integrate_and_fire(module: neurons.IF, contract: Contract) -> nir.NIRNode:
    """Our integrate-and-fire neuron. Its linear leak is a constant input: a bias, which NIR can say.

    v <- v + x + leak  =  v + dt r (x + leak)  with r = 1/dt

    A graph has one floor: where a module has another, its volts are scaled so that the floors agree.
    """
    _steps_as(contract, module)
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


def norse_neuron(kind: type[nir.NIRNode], module: Any, contract: Contract) -> nir.NIRNode:
    """Norse's neurons, their parameters broadcast to one shape.

    Norse's current jumps by x, where NIR's by dt/tau_syn w_in x: so w_in = tau_syn/dt.
    Its integrate-and-fire neuron is v <- v + x: so r = 1/dt.
    """
    keys = [key for key in PARAMETERS[kind] if key in NORSE]
    arrays = np.broadcast_arrays(*(numbers(getattr(module.p, NORSE[key])) for key in keys))
    values = {
        key: 1 / array if key.startswith("tau") else np.array(array)
        for key, array in zip(keys, arrays, strict=True)
    }
    values["r"] = np.ones_like(arrays[0])
    if kind is nir.IF:
        values["r"] /= contract.dt or 1.0
        if values["v_reset"].any():
            raise Refused("it starts at v_reset, NIR's IF at 0; only v_reset = 0 is the same")
    else:
        _agree(contract, dt=module.dt)
    if "v_threshold" in keys:
        names = {reset_value: "zero", reset_subtract: "subtract"}
        reset = names.get(getattr(module.p, "reset_method", reset_value), "own")
        _agree(contract, fire="gt", reset=reset)
    if "tau_syn" in keys:
        values["w_in"] = values["tau_syn"] / module.dt
    return kind(**values)


def recurrent_cuba_lif(module: Any, contract: Contract) -> nir.NIRGraph:
    """Norse's recurrent LIF: a sub-graph whose neuron feeds itself through a matrix, one step later."""
    recurrent = module.recurrent_weights.detach().clone()
    if module.autapses is False:
        recurrent.fill_diagonal_(0.0)
    return nir.NIRGraph(
        {
            "input": nir.Input(np.array([module.input_size])),
            "w_in": nir.Linear(weights(module.input_weights)),
            "lif": norse_neuron(nir.CubaLIF, module, contract),
            "w_rec": nir.Linear(weights(recurrent)),
            "output": nir.Output(np.array([module.hidden_size])),
        },
        [("input", "w_in"), ("w_in", "lif"), ("lif", "w_rec"), ("w_rec", "lif"), ("lif", "output")],
        type_check=False,
    )


def lifted(module: Any, contract: Contract) -> nir.NIRNode | None:
    """Norse's Lift applies a module to every step, as NIR does anyway."""
    return convert(module.lifted_module, contract)


def _steps_as(contract: Contract, module: neurons.LI | neurons.IF) -> None:
    _agree(contract, dt=module.dt)
    if module.dynamics.fires:
        _agree(contract, reset=module.dynamics.reset, fire=module.dynamics.fire)


def _agree(contract: Contract, **stated: object) -> None:
    """A graph has one contract for all its nodes."""
    for key, value in stated.items():
        if value != getattr(contract, key):
            raise Refused(f"its {key} is {value}, the contract says {getattr(contract, key)}")


NORSE = {  # parameters of NIR, and what Norse calls them; rates are 1 / time constant
    "tau": "tau_mem_inv",
    "tau_mem": "tau_mem_inv",
    "tau_syn": "tau_syn_inv",
    "v_leak": "v_leak",
    "v_threshold": "v_th",
    "v_reset": "v_reset",
}
MODULES: dict[type, Convert] = {
    nn.Linear: linear,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, layers.Conv), convolution),
    **dict.fromkeys((nn.AvgPool2d, layers.AvgPool), pooling),
    nn.Flatten: flatten,
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.Dropout2d), nothing),
    **dict.fromkeys((neurons.LIF, neurons.LI), leaky),
    neurons.IF: integrate_and_fire,
    norse.LIFBoxCell: partial(norse_neuron, nir.LIF),
    norse.LIBoxCell: partial(norse_neuron, nir.LI),
    **dict.fromkeys((norse.LIFCell, norse.LIF), partial(norse_neuron, nir.CubaLIF)),
    **dict.fromkeys((norse.LICell, norse.LI), partial(norse_neuron, nir.CubaLI)),
    **dict.fromkeys((norse.IAFCell, norse.IAF), partial(norse_neuron, nir.IF)),
    **dict.fromkeys((norse.LIFRecurrentCell, norse.LIFRecurrent), recurrent_cuba_lif),
    norse.Lift: lifted,
}
REASONS: dict[type, str] = {
    **dict.fromkeys((nn.ReLU, neurons.ReLU), "NIR has no ReLU; train with spiking neurons"),
    neurons.LIReLU: "NIR has no ReLU, which follows this leaky integrator; train with spiking neurons",
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax), "NIR has no softmax; leave the readout to the contract"),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d), "NIR has no max-pooling; use average pooling"),
    nn.modules.batchnorm._BatchNorm: "NIR has no batch normalisation; fold it into the layer before",
    **dict.fromkeys(
        (nn.modules.conv._ConvTransposeNd, layers.TransposedConv), "NIR has no transposed convolution"
    ),
}
