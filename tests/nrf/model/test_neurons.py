"""The fused scan gives Norse's numbers, forward and backward."""

from contextlib import contextmanager, nullcontext
from math import inf
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from norse.torch.functional.leaky_integrator_box import LIBoxState, li_box_feed_forward_step
from norse.torch.functional.lif_box import LIFBoxFeedForwardState, lif_box_feed_forward_step

from nrf.model import scan
from nrf.model.dynamics import Dynamics, numbers_of
from nrf.model.neurons import IF, LI, LIF
from tests.norse_cells import parameters

shapes = st.tuples(
    st.integers(1, 12), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)
)
seeds = st.integers(0, 10_000)


def drive(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(shape, generator=generator, dtype=dtype)).requires_grad_()


def taus(channels: int, seed: int) -> torch.Tensor:
    return 1e-3 + 0.02 * torch.rand(channels, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=40)
@given(shapes, seeds, st.sampled_from(["zero", "subtract"]))
def test_lif_gives_the_spikes_membranes_and_gradients_of_norse(shape, seed, reset):
    x = drive(shape, seed)
    neuron = LIF(
        taus(shape[2], seed), alpha=1.0, reset=reset
    )  # alpha 1 is what Norse's SuperSpike does whatever it is told
    z, v = neuron(x)
    weight = torch.randn(z.shape)
    mine = torch.autograd.grad((z * weight).sum() + v.sum(), x)[0]
    state = LIFBoxFeedForwardState(v=torch.zeros(shape[1:]))
    spikes = []
    for frame in x:
        spike, state = lif_box_feed_forward_step(frame, state, parameters(neuron), dt=neuron.dt)
        spikes.append(spike)
    theirs = torch.autograd.grad((torch.stack(spikes) * weight).sum() + state.v.sum(), x)[0]
    assert torch.equal(z, torch.stack(spikes))
    torch.testing.assert_close(v, state.v)
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=20)
@given(shapes, seeds)
def test_li_gives_the_membrane_of_norse(shape, seed):
    x = drive(shape, seed)
    neuron = LI(taus(shape[2], seed))
    state = LIBoxState(v=torch.zeros(shape[1:]))
    theirs = []
    for frame in x:
        membrane, state = li_box_feed_forward_step(frame, state, parameters(neuron), dt=neuron.dt)
        theirs.append(membrane)
    torch.testing.assert_close(neuron(x)[0], torch.stack(theirs))


def surrogate(alpha: float, threshold: float) -> type[torch.autograd.Function]:
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, m):
            ctx.save_for_backward(m)
            return (m > threshold).to(m.dtype)

        @staticmethod
        def backward(ctx, g):
            (m,) = ctx.saved_tensors
            return g / (threshold * (1 + alpha * (m / threshold - 1).abs()) ** 2)

    return Spike


@settings(deadline=None, max_examples=40)
@given(
    shapes,
    seeds,
    st.sampled_from(["zero", "subtract"]),
    st.sampled_from([None, -1.0, 0.0]),
    st.floats(0.5, 20.0),
    st.floats(0.3, 3.0),
)
def test_if_gradients_are_those_of_autograd_for_every_alpha_and_floor(
    shape, seed, reset, v_min, alpha, threshold
):
    x = drive(shape, seed, torch.float64)
    leak = -0.1 * torch.arange(shape[2], dtype=torch.float64)
    neuron = IF(threshold, v_min, leak, reset=reset, alpha=alpha).double()
    z, v = neuron(x)
    weight = torch.randn(z.shape, dtype=torch.float64)
    mine = torch.autograd.grad((z * weight).sum() + v.sum(), x)[0]
    spike, m, loss = (
        surrogate(alpha, float(neuron.threshold)).apply,
        torch.zeros(shape[1:], dtype=torch.float64),
        0.0,
    )
    for frame, w in zip(x, weight, strict=True):
        m = m + frame + neuron.leak
        m = m if v_min is None else m.clamp(min=v_min)
        fired = spike(m)
        m = m * (1 - fired) if reset == "zero" else m - float(neuron.threshold) * fired
        loss = loss + (fired * w).sum()
    theirs = torch.autograd.grad(loss + m.sum(), x)[0]
    torch.testing.assert_close(v, m)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("kind", [LI, LIF])
def test_time_constants_learn_by_the_gradient_of_their_equation(kind):
    x = drive((9, 2, 3, 2, 2), 1, torch.float64).detach()
    neuron = kind([2e-3, 5e-3, 9e-3], learn_tau=True).double()
    output, v = neuron(x)
    weight = torch.randn(output.shape, dtype=torch.float64)
    mine = torch.autograd.grad((output * weight).sum() + v.sum(), neuron.log_steps)[0]
    rate, m, loss = neuron.rate, torch.zeros(x.shape[1:], dtype=torch.float64), 0.0
    spike = surrogate(10.0, 1.0).apply
    for frame, w in zip(x, weight, strict=True):
        m = m + rate * (frame - m)
        if kind is LIF:
            fired = spike(m)
            m, loss = m * (1 - fired), loss + (fired * w).sum()
        else:
            loss = loss + (m * w).sum()
    theirs = torch.autograd.grad(loss + m.sum(), neuron.log_steps)[0]
    torch.testing.assert_close(mine, theirs)


def test_steeper_surrogate_gives_smaller_gradient_away_from_threshold():
    x = torch.zeros(1, 1, 1, 1, 1, requires_grad=True)
    flat, steep = (torch.autograd.grad(LIF(5e-3, alpha=a)(x)[0].sum(), x)[0].item() for a in (1.0, 10.0))
    assert flat == pytest.approx(0.2 / 4) and steep == pytest.approx(0.2 / 121)


@pytest.mark.parametrize("neuron", [LI([2e-3, 8e-3]), LIF([2e-3, 8e-3]), IF(1.0, 0.0, [-0.1, -0.2])])
def test_windows_with_carried_state_equal_one_long_run(neuron):
    x = drive((20, 2, 2, 3, 3), 3).detach()
    whole, end = neuron(x)
    first, v = neuron(x[:7])
    second, v = neuron(x[7:], v)
    assert torch.equal(whole, torch.cat([first, second])) and torch.equal(end, v)


def test_floor_and_linear_leak_follow_their_equation():
    spikes, v = IF(threshold=1.0, v_min=-0.5, leak=-0.25)(
        torch.tensor([-9.0, 2.0, 0.0]).reshape(3, 1, 1, 1, 1)
    )
    assert spikes.flatten().tolist() == [0.0, 1.0, 0.0] and v.item() == pytest.approx(0.0)


@settings(deadline=None, max_examples=30)
@given(
    shapes,
    seeds,
    st.sampled_from(["zero", "subtract"]),
    st.sampled_from([-inf, -0.5]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["gt", "ge"]),
)
def test_scan_in_numba_and_in_torch_is_the_same(shape, seed, reset, v_min, leaky, fires, fire):
    dynamics = Dynamics(leaky, fires, reset, v_min, alpha=3.0, fire=fire)
    rate = taus(shape[2], seed).reshape(-1, 1, 1) * 40 if leaky else torch.tensor(1.0)
    answers = []
    for compiled_for in ("cpu", "nothing"):
        x, v, g = (drive(shape, seed + i) for i in range(3))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scan, "COMPILED_FOR", compiled_for)
            output, end = scan.scan(x, v[0], rate, torch.tensor(0.7), dynamics)
            answers.append(
                (output, end, *torch.autograd.grad((output * g).sum() + (end * g[0]).sum(), (x, v)))
            )
    assert all(torch.equal(a, b) for a, b in zip(answers[0][:2], answers[1][:2], strict=True))
    for a, b in zip(answers[0][2:], answers[1][2:], strict=True):
        torch.testing.assert_close(a, b)


@settings(deadline=None, max_examples=15)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(1, 20), st.integers(1, 4), st.integers(1, 5)),
    seeds,
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from(["lif", "li", "relu"]),
    st.booleans(),
)
def test_populations_of_one_drive_and_their_pools_are_those_of_separate_scans(shape, seed, side, kind, whole):
    """Values, and gradients of drive, start and rates, from the output, or from the share that fires.

    Those together go through few rows at a time, on three threads.
    """
    shape = (*shape[:3], shape[3] * max(side, 1), shape[4] * max(side, 1))
    dynamics = Dynamics(True, kind == "lif", alpha=3.0, rectified=kind == "relu")
    numbers = [numbers_of(torch.tensor(level), dynamics) for level in (0.7, 1.3, 0.4)]
    answers = []
    for together in (True, False):
        few_rows = patch.multiple(scan, HELD=1, BLOCK=64) if together else nullcontext()
        with few_rows, threads(3 if together else 1):
            answers.append(values_and_gradients(shape, seed, side, dynamics, numbers, whole, together))
    for a, b in zip(*answers, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4)


def values_and_gradients(shape, seed, side, dynamics, numbers, whole, together):
    x, v, g = (drive(shape, seed + i) for i in range(3))
    rates = [(taus(shape[2], seed + k).reshape(-1, 1, 1) * 40).requires_grad_() for k in range(3)]
    all_of = [scan.Population(*each) for each in zip([None, v[0], v[-1]], rates, numbers, strict=True)]
    if together:
        scanned = scan.scan_all(x, all_of, side, 0.25)
    else:
        scanned = [pooled_apart(scan.scan_all(x, [each])[0], side, dynamics.fires) for each in all_of]
    total, values = torch.zeros(()), []
    for output, pooled, firing, end in scanned:
        assert (output is None) == (side > 0) and (firing is None) != dynamics.fires
        if output is not None:
            total = total + (output * g).sum() if whole else total
            values.append(output)
        if pooled is not None:
            part = g[..., : pooled.shape[-2], : pooled.shape[-1]]
            total = total + (pooled * part).sum() if whole else total
            values.append(pooled)
        if firing is not None:
            total = total + (firing * g[:, :, 0, 0, 0]).sum()
            values.append(firing)
        total = total + (end * g[0]).sum()
        values.append(end)
    return (*values, *torch.autograd.grad(total, (x, v, *rates)))


@contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pooled_apart(scanned: scan.Scanned, side: int, fires: bool) -> scan.Scanned:
    """What torch makes of the output alone."""
    output, firing = scanned.output, scanned.output.mean((2, 3, 4)) if fires else None
    if not side:
        return scan.Scanned(output, None, firing, scanned.end)
    small = torch.nn.functional.avg_pool2d(output.flatten(0, 1), side, divisor_override=4)
    return scan.Scanned(None, small.reshape(*output.shape[:2], *small.shape[1:]), firing, scanned.end)
