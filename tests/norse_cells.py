"""Our neurons as Norse's cells, which they are compared with."""

import torch
from norse.torch import LIBoxCell, LIFBoxCell
from norse.torch.functional.leaky_integrator_box import LIBoxParameters
from norse.torch.functional.lif_box import LIFBoxParameters
from norse.torch.functional.reset import reset_subtract, reset_value

from nrf.model.neurons import LI, LIF


def parameters(neuron: LI) -> LIFBoxParameters | LIBoxParameters:
    """The same neuron in Norse's words."""
    if not isinstance(neuron, LIF):
        return LIBoxParameters(tau_mem_inv=neuron.rate.detach() / neuron.dt)
    return LIFBoxParameters(
        tau_mem_inv=neuron.rate.detach() / neuron.dt,
        v_th=neuron.threshold,
        alpha=torch.tensor(neuron.dynamics.alpha),
        reset_method=reset_value if neuron.dynamics.reset == "zero" else reset_subtract,
    )


def cell(neuron: LI) -> torch.nn.Module:
    """The same neuron as a module of Norse, which takes one step at a time."""
    kind = LIFBoxCell if isinstance(neuron, LIF) else LIBoxCell
    return kind(parameters(neuron), dt=neuron.dt)
