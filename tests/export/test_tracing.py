"""The exporter: Norse models and branches become graphs with the same spikes; the rest is refused by name."""

from typing import Any

import nir
import norse.torch as norse
import numpy as np
import pytest
import torch
from norse.torch.functional.reset import reset_subtract
from torch import Tensor, nn

from nrf.backends.reference import run
from nrf.errors import InputError
from nrf.export import Contract, from_torch, read_graph, write_graph
from nrf.model.config import BlockConfig, NetworkConfig
from nrf.model.integers import fix_grids
from nrf.model.network import build, feeds
from nrf.model.neurons import IF, LI, LIF, LIReLU

STEP = Contract(dt=1e-3)


def norse_run(module: nn.Module, frames: np.ndarray) -> np.ndarray:
    """Outputs of a stateful module, step by step, in float64."""
    module, state, outputs = module.double().eval(), None, []
    with torch.no_grad():
        for frame in torch.as_tensor(frames, dtype=torch.float64):
            output, state = module(frame[None], state)
            outputs.append(output[0].numpy())
    return np.array(outputs)


def neuron_parameters(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Tensor]:
    spans = {"tau_mem_inv": (100, 800), "v_leak": (0, 0.1), "v_th": (0.2, 0.4), "v_reset": (-0.1, 0.1)}
    return {key: torch.as_tensor(rng.uniform(*span, shape)) for key, span in spans.items()}


def test_a_norse_model_gives_the_same_spikes_as_its_graph(tmp_path: Any) -> None:
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    p = neuron_parameters(rng, (4, 1, 1))
    model = norse.SequentialState(
        nn.Conv2d(2, 4, 3, padding="same", bias=False),
        norse.LIFBoxCell(norse.LIFBoxParameters(**p)),
        nn.AvgPool2d(2),
        nn.Dropout(0.5),
        nn.Conv2d(4, 4, 3, stride=2, padding=1),
        norse.LIFCell(norse.LIFParameters(tau_syn_inv=torch.tensor(400.0, dtype=torch.float64), **p)),
        nn.Flatten(),
        nn.Linear(16, 5),
        norse.IAFCell(norse.IAFParameters(v_th=torch.tensor(0.7))),
        nn.Identity(),
        nn.Linear(5, 3, bias=False),
        norse.LICell(norse.LIParameters()),
    ).eval()
    frames = 6.0 * (rng.random((60, 2, 8, 8)) < 0.2)
    with torch.no_grad():
        model.double()[4].weight *= 8
        model[7].weight *= 8
        model[7].bias += 0.2
    outputs = norse_run(model, frames)
    write_graph(tmp_path / "model.nir", from_torch(model, torch.zeros(1, 2, 8, 8), STEP))
    graph = read_graph(tmp_path / "model.nir")
    assert nir.read(tmp_path / "model.nir").nodes.keys() == graph.nodes.keys()  # plain nir opens it as well
    recording = run(graph, frames, dtype=torch.float64)
    assert graph.neurons == ["1", "5", "8", "11"]
    assert graph.nodes["1"].tau.shape == (4, 8, 8)
    assert all(recording.dense(name).any() for name in ("1", "5", "8"))
    np.testing.assert_allclose(recording.membrane("11"), outputs, atol=1e-6)


class Branches(nn.Module):
    """Two paths with neurons of different kinds, merged by additions, one of them a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = nn.ModuleList([nn.Linear(6, 4), LIF(0.02, threshold=0.3)])
        self.fast = nn.ModuleList([nn.Linear(6, 4), LIF(0.003, threshold=0.3)])
        self.merge = nn.Linear(4, 4)
        self.out = LI(0.01)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        slow, _ = self.slow[1](self.slow[0](x))
        fast = self.fast[1](self.fast[0](x))[0]
        return self.out(self.merge(slow + fast) + slow)[0]


def test_branches_and_additions_become_edges() -> None:
    graph = from_torch(Branches(), torch.zeros(1, 6), STEP)
    assert set(graph.edges) == {
        ("input", "slow.0"),
        ("slow.0", "slow.1"),
        ("input", "fast.0"),
        ("fast.0", "fast.1"),
        ("slow.1", "merge"),
        ("fast.1", "merge"),
        ("merge", "out"),
        ("slow.1", "out"),
        ("out", "output"),
    }
    assert graph.nodes["slow.1"].tau[0] == pytest.approx(0.02)
    assert graph.nodes["fast.1"].tau[0] == pytest.approx(0.003)


def test_a_leak_becomes_the_bias_of_the_layer_before() -> None:
    torch.manual_seed(0)
    neuron = IF(threshold=0.5, v_min=-0.25, leak=[-0.05, -0.1])  # volts are scaled to the contract's floor
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), _First(neuron)).double()
    contract = Contract(dt=1e-3, reset="subtract", v_min=-0.5)
    graph = from_torch(model, torch.zeros(1, 1, 5, 5), contract)
    frames = np.random.default_rng(0).normal(0, 3, (80, 1, 5, 5))
    recording = run(graph, frames, dtype=torch.float64)
    with torch.no_grad():
        drive = model[0](torch.as_tensor(frames))[:, None]
        spikes, end = neuron(drive)
    assert spikes.any()
    np.testing.assert_array_equal(recording.dense(graph.neurons[0]), spikes[:, 0].numpy())
    np.testing.assert_allclose(recording.membrane(graph.neurons[0])[-1], 2 * end[0].numpy(), atol=1e-6)


class _First(nn.Module):
    """Only the output of a neuron, so that it fits a plain Sequential."""

    def __init__(self, neuron: nn.Module) -> None:
        super().__init__()
        self.neuron = neuron

    def forward(self, x: Tensor) -> Tensor:
        return self.neuron(x)[0]


class _Function(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class _Own(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) ** 2


REFUSED = {
    "ReLU": (nn.ReLU(), "module '1' (ReLU): NIR has no ReLU"),
    "softmax": (nn.Softmax(-1), "module '1' (Softmax): NIR has no softmax"),
    "max-pooling": (nn.MaxPool2d(2), "module '1' (MaxPool2d): NIR has no max-pooling"),
    "batch normalisation": (nn.BatchNorm2d(2), "module '1' (BatchNorm2d): NIR has no batch normalisation"),
    "rectified integrator": (_First(LIReLU(0.01)), "module '1.neuron' (LIReLU): NIR has no ReLU"),
    "dropout in training": (nn.Dropout(0.3), "module '1' (Dropout): it drops at random while training"),
    "something else": (nn.GELU(), "module '1' (GELU): the exporter knows no NIR node for it"),
    "a function": (_Function(), "function 'relu' has no node in NIR"),
    "another computation": (_Own(4, 4), "module '1' (_Own): it changes what Linear computes"),
    "another step": (
        _First(LIF(0.01, dt=2e-3)),
        "module '1.neuron' (LIF): its dt is 0.002, the contract says",
    ),
    "another spike condition": (
        _First(IF(reset="zero", fire="ge")),
        "module '1.neuron' (IF): its fire is ge, the contract says gt",
    ),
    "a floor": (
        _First(IF(reset="zero", v_min=-1.0)),
        "module '1.neuron' (IF): its floor v_min is -1, the contract says None",
    ),
    "another reset": (
        _First(LIF(0.01, reset="subtract")),
        "module '1.neuron' (LIF): its reset is subtract, the contract says zero",
    ),
    "reflected border": (
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
        "module '1' (Conv2d): NIR pads with zeros only, not 'reflect'",
    ),
    "other averages": (
        nn.AvgPool2d(3, padding=1, count_include_pad=False),
        "module '1' (AvgPool2d): NIR pools whole windows",
    ),
    "flattened batch": (nn.Flatten(0), "module '1' (Flatten): it flattens the batch as well"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_nir_cannot_say_is_refused_by_name(kind: str) -> None:
    module, message = REFUSED[kind]
    model = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), module)
    with pytest.raises(InputError) as error:
        from_torch(model, torch.zeros(1, 2, 4, 4), STEP)
    assert f"model: {message}" in str(error.value)


def test_all_refusals_come_at_once() -> None:
    model = nn.Sequential(nn.Conv2d(2, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Softmax(-1))
    with pytest.raises(InputError) as error:
        from_torch(model, torch.zeros(1, 2, 8, 8), STEP)
    assert len(str(error.value).splitlines()) == 3


class _Twice(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        once = self.module(x)
        return self.module(once[0] if isinstance(self.module, LIF) else once)


def test_layers_may_be_called_twice_but_neurons_have_one_state() -> None:
    graph = from_torch(_Twice(nn.Linear(3, 3)), torch.zeros(1, 3), STEP)
    assert list(graph.nodes) == ["input", "module", "module_1", "output"]
    with pytest.raises(InputError, match="module 'module' is called twice"):
        from_torch(_Twice(LIF(0.01)), torch.zeros(1, 3), STEP)


def test_norses_reset_by_subtraction_needs_the_contract_to_say_so() -> None:
    cell = norse.LIFBoxCell(norse.LIFBoxParameters(reset_method=reset_subtract))
    model = norse.SequentialState(nn.Linear(3, 3), cell)
    with pytest.raises(InputError, match="its reset is subtract, the contract says zero"):
        from_torch(model, torch.zeros(1, 3), STEP)
    assert from_torch(model, torch.zeros(1, 3), STEP.with_(reset="subtract")).neurons == ["1"]


class _Odd(nn.Module):
    """Things a careless exporter would get wrong without a word."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layer = kind, nn.Linear(3, 3)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        match self.kind:
            case "doubled":
                return self.layer(x + x)
            case "sliced":
                return self.layer(x)[0]
            case "two inputs":
                return self.layer(x) + y
            case "shifted":
                return self.layer(x) + 1.0
            case "weighted":
                return torch.add(x, self.layer(x), alpha=2)
        return {"out": self.layer(x)}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("doubled", "edge input -> layer: the edge is there more than once"),
        ("sliced", "function 'getitem' has no node in NIR"),
        ("two inputs", "argument 'y' is a second input, a graph has one"),
        ("shifted", "function 'add' has no node in NIR"),
        ("weighted", "function 'add' has no node in NIR"),
        ("dictionary", "its forward returns immutable_dict, expected a tensor first"),
    ],
)
def test_nothing_is_dropped_without_a_word(kind: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_torch(_Odd(kind), torch.zeros(1, 3), STEP)


def test_functional_flatten_is_a_node() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(torch.flatten(x, 1) + x.flatten(start_dim=1))

    assert from_torch(Flat(), torch.zeros(1, 3, 2, 2), STEP).shapes["layer"] == (2,)


def test_a_module_whose_path_depends_on_values_is_refused() -> None:
    class Fickle(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(InputError, match="cannot be traced"):
        from_torch(Fickle(), torch.zeros(1, 3), STEP)


def test_a_network_trained_on_integers_is_written_with_the_rounded_weights_that_run():
    config = NetworkConfig(
        blocks=(BlockConfig(4, 3),), input=(2, 8, 8), neuron="if", channels=1, parallel=False, integers=True
    )
    body = build(config).body
    contract = Contract(dt=config.dt, reset=config.reset, output="membrane")
    fix_grids(feeds(body), volts=config.threshold)
    graph = from_torch(body, torch.zeros(1, *config.input), contract)
    written, steps = graph.nodes["conv1"].weight, 2.0 ** float(body.conv1.grid.exponent)
    assert np.array_equal(written * steps, np.rint(written * steps))
    assert np.array_equal(written, body.conv1.effective_weight.detach().numpy())
    assert not np.array_equal(written, body.conv1.weight.detach().numpy())
