"""The network: all ways to run it give the same numbers, and its graph is what NIR can hold."""

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from nirtorch.torch_tracer import NIRTorchTracer
from torch.nn import functional

from nrf.fields.space import fields, spatial_bank
from nrf.model.config import BlockConfig, NetworkConfig
from nrf.model.network import Network, build, normalised
from nrf.model.neurons import IF, LIF
from nrf.model.readout import coordinates
from nrf.training.presets import load_preset, preset_names
from tests.norse_cells import cell

TINY = load_preset("tiny").network
KINDS = {
    "lif": TINY,
    "lif in one path": replace(TINY, parallel=False, bias=True),
    "lif with shared weights": replace(TINY, share=True),
    "li": replace(TINY, neuron="li", time="uniform"),
    "if": replace(
        TINY, neuron="if", v_min=-1.0, leak=(-0.1, -0.02), output=replace(TINY.output, neuron="if", leak=0.3)
    ),
    "relu": replace(TINY, neuron="relu"),
    "relu on eight frames": replace(TINY, neuron="relu", history=8),
}


def network(config: NetworkConfig, seed: int = 1) -> Network:
    made = Network(config, torch.Generator().manual_seed(seed)).double().eval()
    for module in made.modules():
        if isinstance(module, LIF | IF):
            module.set_threshold(0.03)
    return made


def frames(config: NetworkConfig, steps: int = 12, clips: int = 3, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(steps, clips, *config.input, generator=generator) < 0.05).double()


def spikes_of(net: Network, clip: torch.Tensor) -> dict[str, torch.Tensor]:
    """All spikes of every population, each scanned on its own."""
    spikes = {}

    def activate(name, neuron, drive):
        output, _ = neuron(drive)
        if neuron.spiking:
            spikes[name] = output
        return output

    net.body.walk(clip, activate)
    return spikes


@pytest.mark.parametrize("name", KINDS)
def test_all_steps_at_once_equal_a_stream_of_single_steps(name):
    net = network(KINDS[name])
    clip = frames(net.config)
    whole = net(clip)
    state, maps, firing = None, [], {population: [] for population in whole.firing}
    for frame in clip:
        output = net.step(frame, state)
        state = output.state
        maps.append(output.membrane)
        for population, share in output.firing.items():
            firing[population].append(share)
    assert whole.membrane.abs().max() > 0
    torch.testing.assert_close(whole.membrane, torch.stack(maps))
    for population, share in whole.firing.items():
        assert 0 < share.mean() < 1
        assert torch.equal(share, torch.stack(firing[population])), population


def test_spikes_and_maps_are_those_of_a_loop_over_norse_cells():
    net = network(KINDS["lif in one path"])
    body, clip = net.body, frames(net.config)
    names = [n for n in body.paths[0] if n.startswith("lif")]
    cells = {n: cell(body.get_submodule(n)) for n in [*names, "out"]}
    state: dict[str, object] = dict.fromkeys(cells)
    maps, spikes = [], {n: [] for n in names}
    for frame in clip:
        x = frame
        for n in [*body.paths[0], "out"]:
            if n in cells:
                x, state[n] = cells[n](x, state[n])
                if n in spikes:
                    spikes[n].append(x)
            elif n.startswith("pool"):
                pool = functional.avg_pool2d(x, 2)
                x = 4 * pool if n == "pool1" else pool
            else:
                conv = getattr(body, n)
                x = functional.conv2d(x, conv.weight, conv.bias, padding=conv.kernel_size[0] // 2)
        maps.append(x)
    whole, ours = net(clip), spikes_of(net, clip)
    torch.testing.assert_close(whole.membrane, torch.stack(maps))
    for n in names:
        assert torch.equal(ours[n], torch.stack(spikes[n]))
        torch.testing.assert_close(whole.firing[n], ours[n].mean((2, 3, 4)))


@pytest.mark.parametrize("name", ["lif", "if"])
def test_torch_and_numpy_read_the_same_coordinates(name):
    net = network(KINDS[name])
    maps = net(frames(net.config)).membrane
    ours = net.coordinates(maps)[0].detach().numpy()
    for clip in range(maps.shape[1]):
        expected = coordinates(maps[:, clip].detach().numpy(), net.readout)
        np.testing.assert_allclose(ours[:, clip], expected, atol=1e-5)


def test_readout_places_every_cell_at_the_centre_of_the_pixels_it_covers():
    blocks = (BlockConfig(2, 3, pool=2), BlockConfig(2, 3, stride=2), BlockConfig(2, 3, pool=2))
    net = network(replace(TINY, blocks=blocks, neuron="relu"))
    for conv in (m for m in net.body.modules() if isinstance(m, torch.nn.Conv2d)):
        torch.nn.init.zeros_(conv.weight)
        conv.weight.data[:, :, conv.kernel_size[0] // 2, conv.kernel_size[0] // 2] = 1.0  # pass on
    event = torch.zeros(1, 1, *TINY.input, dtype=torch.float64)
    event[..., 16:18, 8:10] = 1.0  # the four pixels of one cell after the first pooling
    maps = net(event).membrane
    rows, columns = torch.nonzero(maps[0, 0, 0], as_tuple=True)
    centre = net.readout.offset + net.readout.stride * np.array([columns.item(), rows.item()])
    # The stride picks cells (4, 8), (6, 8), ... of 2 px each; the pooling after it averages two by two.
    np.testing.assert_allclose(centre, [8.5 + 2, 16.5 + 2])


def test_tracer_finds_only_nodes_that_nir_has_and_all_channels_meet_in_one_sum():
    body = build(load_preset("tiny").network).body
    graph = NIRTorchTracer().trace(body)
    modules = [type(body.get_submodule(n.target)).__name__ for n in graph.nodes if n.op == "call_module"]
    assert set(modules) == {"Conv", "SumPool", "AvgPool", "LIF", "LI"}
    assert modules.count("LIF") == 6 and modules.count("LI") == 1
    functions = {n.target.__name__ for n in graph.nodes if n.op == "call_function"}
    assert functions == {"add", "getitem"}


def test_channels_have_the_geometric_series_of_time_constants_and_block_3_the_fastest():
    net = build(load_preset("tiny").network)
    for block, expected in (
        (1, (0.006 / 2**0.5, 0.006)),
        (2, (0.006 / 2**0.5, 0.006)),
        (3, (0.006 / 2**0.5,) * 2),
    ):
        for channel, tau in enumerate(expected):
            neuron = net.body.get_submodule(f"lif{block}_{channel}")
            torch.testing.assert_close(neuron.tau, torch.full_like(neuron.tau, tau))


def test_uniform_time_constants_stay_in_the_range_of_the_series():
    taus = [build(KINDS["li"], seed=s).body.li1_0.tau for s in range(20)]
    drawn = torch.stack(taus)
    assert drawn.min() >= 0.006 / 2**0.5 and drawn.max() <= 0.006 and drawn.std() > 1e-4


def test_receptive_field_weights_are_the_banks_kernels_at_the_default_scale():
    conv = build(load_preset("demo").network).body.conv1
    bank = fields()
    kernels = spatial_bank([bank[round(i)] for i in np.linspace(0, 143, 16)], 9)[:, ::-1, ::-1]
    for feature in range(16):
        for polarity in range(2):
            weights = conv.weight[feature, polarity].detach().numpy().ravel()
            assert abs(np.corrcoef(weights, kernels[feature].ravel())[0, 1]) > 0.9999
    default = 1 / np.sqrt(3 * 2 * 81)
    np.testing.assert_allclose(conv.weight.detach().square().mean((1, 2, 3)).sqrt(), default, rtol=1e-4)


@pytest.mark.parametrize("merge", ["sum", "mean"])
@pytest.mark.parametrize(
    "changes", [{}, {"neuron": "li"}, {"neuron": "relu"}, {"neuron": "relu", "history": 8}]
)
def test_shared_channels_computed_once_are_separate_channels_with_equal_weights(changes, merge):
    config = replace(TINY, **changes, output=replace(TINY.output, merge=merge))
    shared, separate = network(replace(config, share=True)), network(config)
    for name, parameter in separate.named_parameters():
        block = name.removeprefix("body.").partition("_")[0]
        parameter.data = shared.get_parameter(f"body.{block}.weight").detach().clone()
    clip = frames(config)
    ours, theirs = shared(clip), separate(clip)
    torch.testing.assert_close(ours.membrane, theirs.membrane)
    ours.membrane.square().sum().backward()
    theirs.membrane.square().sum().backward()
    for block in range(1, 5):
        gradients = [separate.get_parameter(f"body.conv{block}_{k}.weight").grad for k in range(2)]
        torch.testing.assert_close(shared.get_parameter(f"body.conv{block}.weight").grad, sum(gradients))


def test_one_time_constant_serves_a_channel_and_the_fastest_also_block_3_and_the_readout():
    output = replace(TINY.output, time="fastest")
    config = replace(TINY, share=True, tie_tau=True, learn_tau=True, time="uniform", output=output)
    body = build(config).body
    assert (
        len({id(p) for name, p in body.named_parameters(remove_duplicate=False) if "log_steps" in name}) == 2
    )
    assert body.lif1_1.log_steps is body.lif2_1.log_steps and body.lif3_1.log_steps is body.out.log_steps
    assert body.out.log_steps is body.lif1_0.log_steps
    blocks = (*config.blocks[:2], replace(config.blocks[2], time="pinned"))
    pinned = build(replace(config, blocks=blocks, output=replace(output, time="pinned"))).body
    fastest = torch.tensor(0.006 / 2**0.5)
    for neuron in (pinned.lif3_0, pinned.lif3_1, pinned.out):
        torch.testing.assert_close(neuron.tau, fastest)
        assert not neuron.log_steps.requires_grad
    assert pinned.lif1_0.tau > fastest


def test_max_pooling_and_transposed_convolution_run_and_keep_cells_where_they_are():
    block = BlockConfig(2, 3, pool=2, pooling="max")
    net = network(
        replace(TINY, blocks=(block,), neuron="relu", output=replace(TINY.output, kernel=5, transposed=True))
    )
    for conv in (m for m in net.body.modules() if isinstance(m, torch.nn.Conv2d)):
        torch.nn.init.zeros_(conv.weight)
        conv.weight.data[:, :, conv.kernel_size[0] // 2, conv.kernel_size[0] // 2] = 1.0  # pass on
    event = torch.zeros(1, 1, *TINY.input, dtype=torch.float64)
    event[..., 16, 8] = 1.0
    maps = net(event).membrane
    assert maps.shape[-2:] == (20, 20)
    rows, columns = torch.nonzero(maps[0, 0, 0], as_tuple=True)
    centre = net.readout.offset + net.readout.stride * np.array([columns.item(), rows.item()])
    np.testing.assert_allclose(centre, [8.5, 16.5])


def test_history_shows_each_frame_with_the_seven_before_it():
    net = network(KINDS["relu on eight frames"])
    clip = frames(net.config)
    changed = clip.clone()
    changed[2] = 0.0
    seen: list[torch.Tensor] = []
    net.body.conv1_0.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
    net(clip)
    net(changed)
    steps = (seen[0] != seen[1]).flatten(1).any(1)
    assert steps.tolist() == [False] * 2 + [True] * 8 + [False] * 2


def test_batch_norm_and_dropout_act_in_training_only():
    net = network(replace(TINY, batch_norm=True, dropout=0.5))
    clip = frames(net.config)
    assert torch.equal(net(clip).membrane, net(clip).membrane)
    net.train()
    assert not torch.equal(net(clip).membrane, net(clip).membrane)
    assert any(isinstance(m, torch.nn.BatchNorm2d) for m in net.body.modules())


def test_a_grid_changes_the_weights_that_run_and_lets_the_gradient_through():
    net = network(TINY)
    clip = frames(net.config)
    conv = net.body.conv1_0
    conv.grid = lambda w: w + (torch.zeros_like(w) - w).detach()  # rounded to nothing, straight through
    output = net(clip)
    assert output.firing["lif1_0"].sum() == 0
    output.membrane.sum().backward()
    assert conv.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["lif", "if", "lif in one path", "lif with shared weights"])
def test_normalised_network_spikes_the_same_at_the_thresholds_of_its_configuration(name):
    net = network(KINDS[name])
    clip = frames(net.config)
    same = normalised(net)
    normal = spikes_of(same, clip)
    for population, z in spikes_of(net, clip).items():
        assert torch.equal(z, normal[population])
        if "shared" not in name:
            assert same.body.get_submodule(population).threshold == net.config.threshold


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_builds_and_names_its_maps(name):
    config = load_preset(name)
    net = build(config.network)
    side = config.network.input[1] / net.readout.stride
    if name == "paper-code":  # 300 150 75 37, then maxima of 18, then a transposed convolution
        assert net.readout.stride == 16 and net.readout.offset == 7.5 - 2 * 16
        assert net.body.conv3.weight.shape == (3, 192, 5, 5)
        return
    assert side == int(side)
    if name != "paper":
        clip = torch.zeros(1, 1, *config.network.input)
        assert net(clip).membrane.shape == (1, 1, config.network.shapes, int(side), int(side))
    else:
        assert all(
            net.body.get_submodule(f"conv{b}_{k}").weight.shape[0] == 144 for b in (1, 2, 3) for k in range(4)
        )
