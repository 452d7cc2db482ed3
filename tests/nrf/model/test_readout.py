"""The host's readout: coordinates of what the maps show."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.model.readout import Readout, coordinates


def test_a_single_bright_cell_is_where_the_shape_is() -> None:
    maps = np.zeros((1, 1, 4, 6))
    maps[0, 0, 1, 5] = 1.0
    centres = coordinates(maps, Readout(gain=1000.0, stride=4.0, offset=1.5))
    np.testing.assert_allclose(centres, [[[1.5 + 4 * 5, 1.5 + 4 * 1]]])


def test_huge_values_do_not_overflow() -> None:
    assert np.isfinite(coordinates(np.full((2, 3, 4, 4), 1e30), Readout(gain=1e5))).all()


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 20), st.floats(0.05, 1.0))
def test_it_is_the_softmax_mean_of_an_integrated_map(seed: int, gain: float, leak: float) -> None:
    maps = np.random.default_rng(seed).normal(size=(5, 2, 3, 4))
    state = torch.zeros(2, 3, 4, dtype=torch.float64)
    for step, centres in zip(maps, coordinates(maps, Readout(gain, 2.0, 0.5, leak)), strict=True):
        state = torch.lerp(state, torch.as_tensor(step), leak)
        weight = torch.softmax(gain * state.flatten(1), 1).reshape(state.shape)
        x = (weight.sum(1) * torch.arange(4)).sum(-1)
        y = (weight.sum(2) * torch.arange(3)).sum(-1)
        np.testing.assert_allclose(centres, 0.5 + 2 * torch.stack([x, y], -1).numpy(), atol=1e-9)
