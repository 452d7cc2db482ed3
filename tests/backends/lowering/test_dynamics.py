"""The difference equations of chips start where the reference starts."""

import nir
import numpy as np
import pytest

from nrf.backends.lowering.dynamics import dynamics_of
from nrf.backends.lowering.layers import Population
from nrf.export.contract import Contract


@pytest.mark.parametrize("start", ["leak", "reset"])
def test_neurons_that_never_reset_start_at_their_leak_voltage(start: str) -> None:
    node = nir.LI(tau=np.full(3, 5e-3), r=np.ones(3), v_leak=np.full(3, 0.25))
    contract = Contract(dt=1e-3, start=start)  # type: ignore[arg-type]
    dynamics = dynamics_of(Population("li", node, (3,), np.zeros(3)), contract)
    assert np.allclose(dynamics.start_v, 0.25)
    assert np.allclose(dynamics.bias, 0.2 * 0.25), "and stay there"
