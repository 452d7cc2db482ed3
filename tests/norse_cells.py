"""Our neurons as Norse's cells, which they are compared with."""

import torch
from norse.torch import LIBoxCell, LIFBoxCell
from norse.torch.functional.leaky_integrator_box import LIBoxParameters
from norse.torch.functional.lif_box import LIFBoxParameters
from norse.torch.functional.reset import reset_subtract, reset_value

from nrf.model.neurons import LI, LIF


def parameters(neuron: LI, learn_tau: bool = False) -> LIFBoxParameters | LIBoxParameters:
    """The same neuron in Norse's words; with `learn_tau`, gradients find the way to our parameter."""
    rate = neuron.rate if learn_tau else neuron.rate.detach()
    if not isinstance(neuron, LIF):
        return LIBoxParameters(tau_mem_inv=rate / neuron.dt)
    return LIFBoxParameters(
        tau_mem_inv=rate / neuron.dt,
        v_th=neuron.threshold,
        alpha=torch.tensor(neuron.dynamics.alpha),
        reset_method=reset_value if neuron.dynamics.reset == "zero" else reset_subtract,
    )


def cell(neuron: LI) -> torch.nn.Module:
    """The same neuron as a module of Norse, which takes one step at a time."""
    kind = LIFBoxCell if isinstance(neuron, LIF) else LIBoxCell
    return kind(parameters(neuron), dt=neuron.dt)
