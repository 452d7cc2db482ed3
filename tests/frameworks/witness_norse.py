"""Random Norse networks, their NIR export and the spikes Norse itself computes for them.

The file is written with Norse's own exporter, from a sample without batch axis:

    graph = norse.torch.utils.export_nir.to_nir(network, torch.zeros(*shape))
    graph.infer_types()  # only with convolutions: nir.write refuses the shapes that to_nir leaves open
    nir.write("network.nir", graph, compression=None)

(uncompressed, because compressing many small arrays one by one makes the file larger). Norse exports Linear,
Conv2d with bias, and the cells LIFBoxCell, LIFCell and IAFCell; no recurrent cell, pooling or Flatten.
Everything is in float64, parameters included.
"""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import nir
import norse.torch as norse
import numpy as np
import torch
from norse.torch.functional.reset import reset_subtract
from norse.torch.utils.export_nir import to_nir
from torch import nn
from witness import RATES, draw_input, generator, main, save
from witness_torch import Built, Neuron, dense, round_weights, synapses, tune, uniform, weighted

V_RESET = -0.25  # of the cases "v_reset"; not in the file
SLOW_DT = 0.002  # of the case "dt"; not in the file
CELLS = (norse.LIFBoxCell, norse.LIFCell, norse.IAFCell)


def lif_box(
    rng: np.random.Generator, shape: tuple[int, ...], kind: str = "default", dt: float = 0.001
) -> nn.Module:
    """LIFBoxCell: v = v + dt tau_mem_inv (x + v_leak - v); z = v > v_th; v = (1 - z) v + z v_reset.

    v starts at v_leak. With `reset_subtract`: v = v - z v_th.
    """
    values = _parameters(rng, shape, kind)
    method = {"reset_method": reset_subtract} if kind == "subtract" else {}
    del values["tau_syn_inv"]
    return norse.LIFBoxCell(norse.LIFBoxParameters(**values, **method), dt=dt)


def lif(rng: np.random.Generator, shape: tuple[int, ...], kind: str = "default") -> nn.Module:
    """LIFCell: i = i + x; v = v + dt tau_mem_inv (v_leak - v + i); i = i - dt tau_syn_inv i.

    Spike, reset and start as LIFBoxCell; i starts at 0.
    """
    return norse.LIFCell(norse.LIFParameters(**_parameters(rng, shape, kind)))


def iaf(rng: np.random.Generator, shape: tuple[int, ...], kind: str = "default") -> nn.Module:
    """IAFCell: v = v + x; z = v > v_th; v = (1 - z) v + z v_reset; v starts at v_reset."""
    values = _parameters(rng, shape, kind)
    return norse.IAFCell(norse.IAFParameters(v_th=values["v_th"], v_reset=values["v_reset"]))


def _parameters(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> dict[str, torch.Tensor]:
    """Norse's default values as scalars, or random ones for each neuron; in float64."""
    values = {"tau_syn_inv": 200.0, "tau_mem_inv": 100.0, "v_leak": 0.0, "v_th": 1.0, "v_reset": 0.0}
    if kind == "v_reset":
        values["v_reset"] = V_RESET
    if kind not in ("each", "leak"):
        return {name: torch.tensor(value) for name, value in values.items()}
    tensors = {name: torch.full(shape, value) for name, value in values.items()}
    tensors["tau_syn_inv"] = uniform(rng, 50, 500, shape)
    tensors["tau_mem_inv"] = uniform(rng, 40, 500, shape)
    tensors["v_th"] = uniform(rng, 0.5, 1.5, shape)
    if kind == "leak":
        tensors["v_leak"] = uniform(rng, -0.3, 0.3, shape)
    return tensors


def conv(rng: np.random.Generator, neuron: Neuron) -> Built:
    """Three convolutions on 2 maps of 10 x 10, the last one over the whole map."""
    stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2))
    layers: list[nn.Module] = []
    shape: tuple[int, ...] = (2, 10, 10)
    for size, step, border in ((3, stride, padding), (3, 2, 0), (None, 1, 0)):
        kernel = (size, size) if size else (shape[1], shape[2])
        layer = weighted(rng, nn.Conv2d(shape[0], 3, kernel, stride=step, padding=border))
        shape = tuple(layer(torch.zeros(shape)).shape)
        layers += [layer, neuron(rng, shape)]
    return nn.Sequential(*layers), (2, 10, 10)


CASES: dict[str, Callable[[np.random.Generator], Built]] = {
    "lif_box_default": partial(dense, neuron=lif_box),
    "lif_box_each": partial(dense, neuron=partial(lif_box, kind="each")),
    "lif_box_leak": partial(dense, neuron=partial(lif_box, kind="leak")),
    "lif_box_v_reset": partial(dense, neuron=partial(lif_box, kind="v_reset")),
    "lif_box_subtract": partial(dense, neuron=partial(lif_box, kind="subtract")),
    "lif_box_dt": partial(dense, neuron=partial(lif_box, dt=SLOW_DT)),
    "lif_box_true_tau": partial(dense, neuron=partial(lif_box, kind="each")),
    "lif_box_batched": partial(dense, neuron=lif_box),
    "conv_lif_box_each": partial(conv, neuron=partial(lif_box, kind="each")),
    "lif_default": partial(dense, neuron=lif),
    "lif_each": partial(dense, neuron=partial(lif, kind="each")),
    "lif_leak": partial(dense, neuron=partial(lif, kind="leak")),
    "lif_v_reset": partial(dense, neuron=partial(lif, kind="v_reset")),
    "lif_true_tau": partial(dense, neuron=partial(lif, kind="each")),
    "conv_lif_each": partial(conv, neuron=partial(lif, kind="each")),
    "iaf_default": partial(dense, neuron=iaf),
    "iaf_each": partial(dense, neuron=partial(iaf, kind="each")),
    "iaf_v_reset": partial(dense, neuron=partial(iaf, kind="v_reset")),
    "iaf_ties": partial(dense, neuron=iaf),
    "conv_iaf_each": partial(conv, neuron=partial(iaf, kind="each")),
}


def run(network: nn.Sequential, frames: np.ndarray) -> dict[str, np.ndarray]:
    """Spikes of every spiking layer, under the names that the exporter gives them."""
    record: dict[str, list[np.ndarray]] = {}
    states: dict[str, object] = {}
    for value in torch.from_numpy(frames).double():
        for name, layer in network.named_children():
            if isinstance(layer, CELLS):
                value, states[name] = layer(value, states.get(name))
                record.setdefault(name, []).append(value.numpy())
            else:
                value = layer(value)
    return {name: np.stack(spikes).astype(np.uint8) for name, spikes in record.items()}


def export(network: nn.Sequential, shape: tuple[int, ...], case: str) -> nir.NIRGraph:
    """The graph as a user writes it.

    By default the exporter writes tau = 0.001 / tau_mem_inv; with `dt=1.0` ("true_tau") the real one.
    """
    options = {"dt": 1.0} if case.endswith("true_tau") else {"dt": SLOW_DT} if case.endswith("_dt") else {}
    sample = torch.zeros(1, *shape) if case.endswith("batched") else torch.zeros(shape)
    graph = to_nir(network, sample, **options)
    if any(isinstance(layer, nn.Conv2d) for layer in network):
        graph.infer_types()
    return graph


def make(case: str, seed: int, folder: Path) -> None:
    """Write `<case>_<seed>.nir` and `<case>_<seed>.npz`."""
    torch.set_default_dtype(torch.float64)
    rng = generator(CASES, case, seed)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nirtorch announces that its extract_nir_graph will go
        layers, shape = CASES[case](rng)
        network = norse.SequentialState(*layers)
        frames = draw_input(rng, shape)
        spikes = tune(lambda: run(network, frames), synapses(network), rng.uniform(*RATES))
        if case.endswith("ties"):
            round_weights(synapses(network))
            spikes = run(network, frames)
        graph = export(network, shape, case)
    nir.write(folder / f"{case}_{seed}.nir", graph, compression=None)
    save(folder / f"{case}_{seed}.npz", frames, spikes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(make, CASES, ("norse", "torch", "nir", "nirtorch", "numpy"))
