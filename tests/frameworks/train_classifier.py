"""A small classifier, trained, run and exported by a framework: in which of five directions moves a bar?

    python train_classifier.py FRAMEWORK DATA.npz FOLDER

DATA holds `train`, `train_labels` and `test` (clips, steps, 2, rows, columns). Writes network.nir, by the
framework's own exporter, and golden.npz: the test clips, their labels, and its own spikes for them.
Two fully connected layers of the framework's usual neuron; the class is the output that fires most. Runs in
the framework's environment, without nrf. Prints the share of test clips that the framework itself gets right.
"""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import nir
import numpy as np
import torch
from torch import nn

HIDDEN, CLASSES, ROUNDS, BATCH = 24, 5, 100, 40
FLAT = ("norse", "rockpool")  # take vectors: their exporters know no Flatten
Run = Callable[[torch.Tensor], dict[str, torch.Tensor]]  # (T, B, *shape) -> spikes (T, B, neurons), by node
Built = tuple[nn.Module, Run, Callable[[tuple[int, ...]], nir.NIRGraph]]


def snntorch(size: int) -> Built:
    """Leaky, as its tutorials use it: reset by subtraction, one step late."""
    import snntorch as snn
    from snntorch import surrogate, utils
    from snntorch.export_nir import export_to_nir

    def leaky(count: int) -> nn.Module:
        beta, threshold = torch.full((count,), 0.9), torch.full((count,), 1.0)
        return snn.Leaky(beta, threshold, spike_grad=surrogate.fast_sigmoid(), init_hidden=True)

    layers = [
        nn.Flatten(),
        nn.Linear(size, HIDDEN),
        leaky(HIDDEN),
        nn.Linear(HIDDEN, CLASSES),
        leaky(CLASSES),
    ]
    network = nn.Sequential(*layers)

    def run(x: torch.Tensor) -> dict[str, torch.Tensor]:
        utils.reset(network)
        return step_by_step(network, x, ("2", "4"))

    def export(shape: tuple[int, ...]) -> nir.NIRGraph:
        utils.reset(network)
        return export_to_nir(network, torch.zeros(1, *shape), ignore_dims=[0])

    return network, run, export


def norse(size: int) -> Built:
    """LIFBoxCell: reset to zero in the step of the spike."""
    import norse.torch as norse
    from norse.torch.utils.export_nir import to_nir

    def lif(count: int) -> nn.Module:
        values = {"tau_mem_inv": 100.0, "v_leak": 0.0, "v_th": 0.2, "v_reset": 0.0}
        tensors = {name: torch.full((count,), value) for name, value in values.items()}
        return norse.LIFBoxCell(norse.LIFBoxParameters(**tensors, alpha=torch.tensor(10.0)), dt=1e-3)

    network = norse.SequentialState(
        nn.Linear(size, HIDDEN), lif(HIDDEN), nn.Linear(HIDDEN, CLASSES), lif(CLASSES)
    )
    for layer in (network[0], network[2]):
        layer.weight.data *= 3  # the cell takes a tenth of its input per step

    def run(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return step_by_step(network, x.flatten(2), ("1", "3"), stateful=True)

    return network, run, lambda shape: to_nir(network, torch.zeros(int(np.prod(shape))))


def spikingjelly(size: int) -> Built:
    """IFNode: no leak, reset to zero."""
    from spikingjelly.activation_based import functional, layer, neuron
    from spikingjelly.activation_based.nir_exchange.to_nir import export_to_nir

    network = nn.Sequential(
        layer.Flatten(step_mode="m"),
        layer.Linear(size, HIDDEN, bias=False, step_mode="m"),
        neuron.IFNode(step_mode="m"),
        layer.Linear(HIDDEN, CLASSES, bias=False, step_mode="m"),
        neuron.IFNode(step_mode="m"),
    )

    def run(x: torch.Tensor) -> dict[str, torch.Tensor]:
        functional.reset_net(network)
        hidden = network[:3](x)
        return {"_2": hidden, "_4": network[3:](hidden)}

    def export(shape: tuple[int, ...]) -> nir.NIRGraph:
        functional.reset_net(network)
        return export_to_nir(network, torch.zeros(1, 1, *shape))

    return network, run, export


def rockpool(size: int) -> Built:
    """LIFTorch: synaptic current, several spikes per step."""
    from rockpool.nn.combinators import Sequential
    from rockpool.nn.modules.torch import LIFTorch, LinearTorch
    from rockpool.nn.modules.torch.nir import to_nir

    parts = [LinearTorch((size, HIDDEN), has_bias=False), LIFTorch(HIDDEN, tau_mem=0.01, tau_syn=0.005)]
    parts += [LinearTorch((HIDDEN, CLASSES), has_bias=False), LIFTorch(CLASSES, tau_mem=0.01, tau_syn=0.005)]
    network = Sequential(*parts)

    def run(x: torch.Tensor) -> dict[str, torch.Tensor]:
        network.reset_state()
        out, _, record = network(x.flatten(2).transpose(0, 1), record=True)
        return {"1_LIFTorch": record["1_LIFTorch_output"].transpose(0, 1), "3_LIFTorch": out.transpose(0, 1)}

    return network, run, lambda shape: to_nir(network)


def sinabs(size: int) -> Built:
    """IAF: no leak, several spikes per step, reset by subtraction: what Speck has."""
    import sinabs.layers as sl
    from sinabs.nir import to_nir

    layers = [nn.Flatten(), nn.Linear(size, HIDDEN, bias=False), sl.IAFSqueeze(batch_size=1)]
    network = nn.Sequential(*layers, nn.Linear(HIDDEN, CLASSES, bias=False), sl.IAFSqueeze(batch_size=1))
    neurons = (network[2], network[4])

    def run(x: torch.Tensor) -> dict[str, torch.Tensor]:
        steps, batch = x.shape[:2]
        for each in neurons:
            each.batch_size = batch
            each.reset_states(randomize=False)
        flat = x.transpose(0, 1).flatten(0, 1)
        hidden = network[:3](flat)
        both = {"2": hidden, "4": network[3:](hidden)}
        return {name: part.unflatten(0, (batch, steps)).transpose(0, 1) for name, part in both.items()}

    def export(shape: tuple[int, ...]) -> nir.NIRGraph:
        for each in neurons:
            each.batch_size = 1
            each.reset_states(randomize=False)
        graph = to_nir(network, torch.zeros(1, *shape))
        graph.infer_types()  # nir.write refuses the shapes that to_nir leaves open
        return graph

    return network, run, export


def step_by_step(
    network: nn.Sequential, x: torch.Tensor, names: tuple[str, str], stateful: bool = False
) -> dict[str, torch.Tensor]:
    """Spikes of the layers that are named, in a framework that steps."""
    seen: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    states: dict[str, object] = {}
    for value in x:
        for name, layer in network.named_children():
            if stateful and name in names:
                value, states[name] = layer(value, states.get(name))
            else:
                value = layer(value)
            if name in names:
                seen[name].append(value)
    return {name: torch.stack(spikes) for name, spikes in seen.items()}


def main() -> None:
    """Train, export, run."""
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    builder, path, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    with np.load(path) as file:
        frames, labels, test = file["train"], file["train_labels"], file["test"]
        truth = file["test_labels"]
    shape = frames.shape[2:]
    network, run, export = globals()[builder](int(np.prod(shape)))
    linear = [module for module in network.children() if "Linear" in type(module).__name__]
    weights = [p for module in linear for p in nn.Module.parameters(module) if p.requires_grad]
    optimiser = torch.optim.Adam(weights, 5e-3)
    x, y = (torch.from_numpy(a) for a in (frames.astype(np.float32), labels.astype(np.int64)))
    for _ in range(ROUNDS):
        some = rng.choice(len(x), BATCH, replace=False)
        *_, out = run(x[some].transpose(0, 1)).values()
        loss = nn.functional.cross_entropy(out.sum(0) / 2, y[some])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        spikes = run(torch.from_numpy(test.astype(np.float32)).transpose(0, 1))
        graph = export(shape)
    nir.write(folder / "network.nir", graph)
    arrays = {name: part.transpose(0, 1).numpy().astype(np.uint8) for name, part in spikes.items()}
    played = test.reshape(*test.shape[:2], -1) if builder in FLAT else test
    np.savez_compressed(folder / "golden.npz", input=played.astype(np.uint8), labels=truth, **arrays)
    *_, last = arrays.values()
    print((last.sum(1).argmax(1) == truth).mean())


main()
