"""Training on a chip's integers: what runs is what is deployed."""

import pytest
import torch
from msgspec.structs import replace

from nrf.model.config import BitsConfig
from nrf.model.dynamics import Dynamics
from nrf.model.integers import Grid, fix_grids
from nrf.model.network import Network, build, feeds, normalised
from nrf.model.neurons import IF
from nrf.model.scan import scan
from nrf.training.presets import load_preset


def network(thresholds: float = 0.37) -> Network:
    """The preset, small, with thresholds that are no power of two, its grids fixed."""
    config = load_preset("speck2f")
    net = build(replace(config.network, input=(2, 16, 16)))
    for _, neuron in feeds(net.body):
        neuron.set_threshold(thresholds)
    fix_grids(feeds(net.body), net.config.threshold)
    return net


def clip(steps: int = 60) -> torch.Tensor:
    return (torch.rand(steps, 2, 2, 16, 16, generator=torch.Generator().manual_seed(0)) < 0.1).float()


def test_before_it_is_fixed_the_grid_lets_weights_pass() -> None:
    weight = torch.randn(4, 2, 3, 3)
    assert Grid(BitsConfig())(weight) is weight


def test_weights_on_the_grid_are_eight_bit_integers_of_a_power_of_two() -> None:
    net = network()
    for conv, neuron in feeds(net.body):
        steps = conv.grid(conv.weight) * 2**conv.grid.exponent
        assert torch.equal(steps, steps.round())
        assert steps.min() >= -128 and steps.max() <= 127
        assert steps.abs().max() > 60, "the grid is no coarser than it must be"
        assert neuron.threshold == 1.0
        assert neuron.v_min == -1.0


@pytest.mark.parametrize("bits", [BitsConfig(weight=4, bias=4), BitsConfig(bias=3, finest=3)])
def test_weights_leaks_and_thresholds_have_the_widths_that_are_asked_for(bits: BitsConfig) -> None:
    config = replace(load_preset("speck2f").network, input=(2, 16, 16), bits=bits, leak=(-0.2,))
    net = build(config)
    fix_grids(feeds(net.body), config.threshold)
    for conv, neuron in feeds(net.body):
        unit = 2**conv.grid.exponent
        steps, leak = conv.grid(conv.weight) * unit, float(neuron.leak.abs().max()) * unit
        assert steps.min() >= -(2 ** (bits.weight - 1)) and steps.max() < 2 ** (bits.weight - 1)
        assert leak < 2 ** (bits.bias - 1) and unit <= 2**bits.finest


def test_the_straight_through_estimator_passes_the_gradient_with_the_gain() -> None:
    grid = Grid(BitsConfig())
    grid.gain.fill_(3.0)
    grid.exponent.fill_(4.0)
    weight = torch.tensor([0.1, -0.2, 7.0], requires_grad=True)
    grid(weight).sum().backward()
    assert torch.equal(weight.grad, torch.full((3,), 3.0))
    assert torch.equal(grid(weight), torch.tensor([5 / 16, -10 / 16, 127 / 16]))


def test_the_normalised_network_holds_the_integers_and_spikes_the_same() -> None:
    net = network()
    same = normalised(net)
    for (conv, _), (plain, _) in zip(feeds(net.body), feeds(same.body), strict=True):
        assert torch.equal(conv.grid(conv.weight), plain.weight)
        assert torch.equal(plain.grid(plain.weight), plain.weight)
    one, other = net(clip()), same(clip())
    assert one.membrane.sum() > 0
    assert torch.equal(one.membrane, other.membrane)
    for name, share in one.firing.items():
        assert torch.equal(share, other.firing[name])


def test_membranes_stay_on_the_grid_in_single_precision() -> None:
    net = network()
    state = net(clip(300)).state
    for conv, neuron in feeds(net.body):
        name = next(n for n, module in net.body.named_modules() if module is neuron)
        steps = state[name] * 2**conv.grid.exponent
        assert torch.equal(steps, steps.round()), name


@pytest.mark.parametrize("fire", ["gt", "ge"])
@pytest.mark.parametrize("reset", ["zero", "subtract"])
def test_a_membrane_that_meets_the_threshold_fires_only_with_ge(
    fire: str, reset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dynamics = Dynamics(leaky=False, fires=True, reset=reset, fire=fire, v_min=-1.0)
    answers = []
    for compiled_for in ("cpu", "nothing"):  # numba, and torch
        monkeypatch.setattr("nrf.model.scan.COMPILED_FOR", compiled_for)
        x = torch.tensor([0.5, 0.5, 0.25, 0.75, -3.0]).reshape(5, 1, 1, 1, 1).expand(5, 1, 2, 3, 3).clone()
        spikes, end = scan(x.requires_grad_(), None, torch.ones(()), torch.tensor(1.0), dynamics)
        assert spikes[:, 0, 0, 0, 0].tolist() == {"ge": [0, 1, 0, 1, 0], "gt": [0, 0, 1, 0, 0]}[fire]
        spikes.sum().backward()
        assert x.grad is not None and not x.grad[-1].any() and x.grad[:-1].all()  # the floor holds the last
        answers.append((spikes, end, x.grad))
    (spikes, end, gradient), (other_spikes, other_end, other_gradient) = answers
    assert torch.equal(spikes, other_spikes) and torch.equal(end, other_end)
    assert torch.allclose(gradient, other_gradient)


def test_only_integrate_and_fire_takes_integers() -> None:
    from nrf.errors import InputError

    config = load_preset("speck2f")
    with pytest.raises(InputError, match=r"neuron is 'lif', integers .* need neuron 'if'"):
        replace(config.network, neuron="lif")


def test_the_preset_is_the_chips_neuron() -> None:
    config = load_preset("speck2f")
    net = build(config.network)
    for conv, neuron in feeds(net.body):
        assert isinstance(neuron, IF)
        assert neuron.dynamics.fire == "ge" and neuron.dynamics.reset == "subtract"
        assert isinstance(conv.grid, Grid)


def test_backlog_is_what_membranes_hold_beyond_the_threshold() -> None:
    from nrf.training.losses import backlog_penalty

    net = network()
    state = {name: torch.zeros(1, 2, 2, 2) for name in ("if1", "if2", "out")}
    assert backlog_penalty(net, state) == 0
    state["if2"] = torch.full((1, 2, 2, 2), 4.0)
    assert backlog_penalty(net, state) == 1.0  # 3 thresholds too much in one of three populations
    assert backlog_penalty(net, {}) == 0
