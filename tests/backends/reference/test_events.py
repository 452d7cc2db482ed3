"""Lists of events say the same as dense maps, through pools, convolutions and neurons, to the last bit."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from nrf.backends.border import Spikes
from nrf.backends.reference import nodes
from nrf.backends.reference.coefficients import Neuron
from nrf.backends.reference.compiled import compiled_scan
from nrf.backends.reference.events import Convolution, Convolved, Events, dense
from nrf.export.contract import Contract

seeds = st.integers(0, 2**32 - 1)


def maps(rng: np.random.Generator, shape: tuple[int, ...], density: float, last: bool) -> torch.Tensor:
    """Whole numbers, so that sums are exact in any order."""
    values = rng.integers(1, 4, shape) * (rng.random(shape) < density)
    x = torch.as_tensor(values.astype(rng.choice([np.float32, np.float64])))
    return x.contiguous(memory_format=torch.channels_last) if last else x


@given(seeds, st.booleans(), st.sampled_from([0.0, 0.05, 0.5, 1.0]))
@settings(max_examples=60, deadline=None)
def test_lists_hold_what_is_not_0(seed: int, last: bool, density: float) -> None:
    rng = np.random.default_rng(seed)
    x = maps(rng, tuple(rng.integers(1, (6, 9, 9, 70))), density, last)
    events, count = Events.of(x), int((x != 0).sum())
    assert events.count == count
    assert torch.equal(events.dense(), x)
    if count:
        assert Events.of(x, count - 1).count == count, "more than there is room for"
    down, across = (int(rng.integers(1, size + 1)) for size in x.shape[2:])
    for divisor in (1, down * across):
        wanted = functional.avg_pool2d(x, (down, across), divisor_override=divisor)
        pooled = events.pooled(down, across, divisor)
        assert torch.equal(pooled.dense(), wanted)
        assert pooled.count == int((wanted != 0).sum())
    late = int(rng.integers(0, len(x) + 2))
    wanted = torch.cat([x.new_zeros(late, *x.shape[1:]), x])[: len(x)]
    assert torch.equal(events.later(late).dense(), wanted)
    assert events.later(late).count == int((wanted != 0).sum())
    spikes, wanted_spikes = Events.of((x != 0).to(x)).spikes(), Spikes.from_dense((x != 0).numpy())
    assert spikes == wanted_spikes


@given(seeds, st.booleans())
@settings(max_examples=60, deadline=None)
def test_signals_of_any_shape_are_one_row(seed: int, several: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 9, 3 if several else 2))
    x = torch.as_tensor((rng.random(shape) < 0.3).astype(np.float32))
    events = Events.of(x)
    assert torch.equal(events.dense(), x)
    assert events.spikes() == Spikes.from_dense(x.numpy())


@pytest.mark.parametrize("threads", [1, 3])
@given(seed=seeds)
@settings(max_examples=80, deadline=None)
def test_neurons_that_convolve_lists_have_the_bits_of_those_that_hear_dense_maps(
    threads: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    side, channels, features = (int(n) for n in rng.integers(1, (12, 6, 40)))
    padding = int(rng.integers(0, side + 2))
    rows, columns = (int(n) for n in rng.integers(max(1, side - 2 * padding), 20, 2))
    x = maps(rng, (int(rng.integers(2, 6)), channels, rows, columns), rng.choice([0.02, 0.3]), True)
    weight = torch.as_tensor(rng.integers(-5, 9, (features, channels, side, side))).to(x)
    bias = torch.as_tensor(rng.integers(-2, 4, features)).to(x) if rng.random() < 0.5 else None
    drive = functional.conv2d(x, weight, bias, padding=padding)

    def numbers(low: float, high: float) -> Any:
        """One for all neurons, or one each."""
        shape = drive.shape[1:] if rng.random() < 0.5 else (1, 1, 1)
        return torch.as_tensor(rng.uniform(low, high, shape)).to(x).expand(drive.shape[1:])

    fires = rng.random() < 0.7
    neuron = Neuron(
        numbers(0.05, 0.5),
        numbers(0.5, 2),
        numbers(-0.1, 0.1),
        numbers(0, 0),
        numbers(1, 9) if fires else None,
        numbers(-1, 1) if fires else None,
    )
    contract = Contract(
        dt=1e-3, reset=rng.choice(["zero", "subtract", "none"]), v_min=rng.choice([None, -1.0])
    )
    waiting = Convolved(Events.of(x), Convolution.of(weight, bias, padding))
    assert waiting.shape == drive.shape
    assert torch.equal(waiting.dense(), drive)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = compiled_scan(neuron, contract, membranes=True)
        signal, volts, state = compiled(waiting, None)
        more, _, _ = compiled(drive.contiguous(), state)  # goes on, from another order of memory
    finally:
        torch.set_num_threads(before)
    wanted, wanted_volts, wanted_state = nodes.scan(drive, None, neuron, contract)
    assert torch.equal(dense(signal), wanted)
    assert volts is not None and wanted_volts is not None
    assert torch.equal(volts, wanted_volts)
    assert torch.equal(dense(more), nodes.scan(drive, wanted_state, neuron, contract)[0])
    if fires:
        assert isinstance(signal, Events) and signal.spikes() == Spikes.from_dense(wanted.numpy())
