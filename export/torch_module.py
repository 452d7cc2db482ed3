"""From a torch module to a graph: nirtorch's tracer finds the modules and how they are connected.

Additions become edges to the same node, which sums them. Everything else must be a module of the node map in
`modules.py`; what is not is refused by name, all of it at once.
"""

import inspect
import operator

import nir
import numpy as np
import torch
from nirtorch.torch_tracer import NIRTorchTracer
from torch import Tensor, fx, nn

from nrf.errors import InputError
from nrf.export.canonical import canonical
from nrf.export.contract import Contract
from nrf.export.graph import STATEFUL, Graph
from nrf.export.modules import Biased, Refused, convert, known

ADDITIONS = (operator.add, operator.iadd, torch.add, "add", "add_")


class Tracer(NIRTorchTracer):  # type: ignore[misc]
    """Stops at every module that the node map knows or refuses."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether to look inside."""
        return known(m) or bool(super().is_leaf_module(m, module_qualified_name))


def from_torch(module: nn.Module, sample: Tensor, contract: Contract, name: str = "model") -> Graph:
    """The graph of a torch module: Norse cells, nrf neurons, and torch's linear layers.

    `sample` is the input of one time step as the module takes it, batch first; only its shape counts.

    >>> model = norse.torch.SequentialState(nn.Conv2d(2, 8, 3), norse.torch.LIFBoxCell())
    >>> from_torch(model, torch.zeros(1, 2, 32, 32), Contract(dt=1e-3)).neurons
    ['1']
    """
    return canonical(trace(module, sample, contract, name), contract, name)


def trace(module: nn.Module, sample: Tensor, contract: Contract, name: str = "model") -> nir.NIRGraph:
    """The raw NIR graph of a torch module."""
    states = {
        key: None
        for key, value in inspect.signature(module.forward).parameters.items()
        if value.default is None
    }
    root = nn.Sequential(module) if known(module) else module
    try:
        traced = Tracer().trace(root, concrete_args=states if root is module else None)
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        raise InputError(
            f"{name}: cannot be traced ({str(error).splitlines()[0]}); its forward must not depend on values"
        ) from error
    return _Walk(root, traced, contract, name).graph(tuple(sample.shape[1:]))


class _Walk:
    """One pass over the traced calls. `sources` holds, for each call, the nodes whose sum it stands for."""

    def __init__(self, root: nn.Module, traced: fx.Graph, contract: Contract, name: str) -> None:
        self.root, self.traced, self.contract, self.name = root, traced, contract, name
        self.nodes: dict[str, nir.NIRNode] = {}
        self.edges: list[tuple[str, str]] = []
        self.sources: dict[fx.Node, list[str]] = {}
        self.refused: list[str] = []

    def graph(self, shape: tuple[int, ...]) -> nir.NIRGraph:
        self.nodes["input"] = nir.Input(np.array(shape))
        for call in self.traced.nodes:
            self._visit(call)
        if self.refused:
            raise InputError("\n       ".join(f"{self.name}: {line}" for line in self.refused))
        self._settle_biases()
        return nir.NIRGraph(self.nodes, self.edges, type_check=False)

    def _visit(self, call: fx.Node) -> None:
        inputs = [source for node in call.all_input_nodes for source in self.sources.get(node, [])]
        if call.op == "placeholder":
            self.sources[call] = [] if self.sources else ["input"]
        elif call.op == "output":
            last = call.args[0]
            while isinstance(last, tuple | list):
                last = last[0]
            self.nodes["output"] = nir.Output(None)
            self.edges += [(source, "output") for source in self.sources.get(last, [])]  # type: ignore[arg-type]
        elif call.op == "call_module":
            self.sources[call] = self._module(call, inputs)
        elif call.target is operator.getitem:
            self.sources[call] = inputs if call.args[1] == 0 else []
        elif call.target in ADDITIONS and all(isinstance(a, fx.Node) for a in call.args) and not call.kwargs:
            self.sources[call] = inputs
        elif call.target in (torch.flatten, "flatten"):
            start, end = ([*call.args[1:], 0, -1] if len(call.args) < 3 else call.args[1:3])[:2]
            layer = nn.Flatten(call.kwargs.get("start_dim", start), call.kwargs.get("end_dim", end))  # type: ignore[arg-type]
            self.sources[call] = self._add(call.name, call.name, layer, inputs)
        elif getattr(call.target, "__name__", "") not in ("_assert_is_none", "_assert"):
            title = getattr(call.target, "__name__", call.target)
            self.refused.append(f"function '{title}' has no node in NIR; use modules and additions only")

    def _module(self, call: fx.Node, inputs: list[str]) -> list[str]:
        target = str(call.target)
        module = self.root.get_submodule(target)
        calls = [other.name for other in self.traced.nodes if other.target == target]
        name = target if calls[0] == call.name else f"{target}_{calls.index(call.name)}"
        return self._add(target, name, module, inputs)

    def _add(self, title: str, name: str, module: nn.Module, inputs: list[str]) -> list[str]:
        try:
            node = convert(module, self.contract)
        except Refused as reason:
            self.refused.append(f"module '{title}' ({type(module).__name__}): {reason}")
            return [name]
        if node is None:
            return inputs
        while name in self.nodes:
            name += "_"
        if name != title and isinstance(node, (*STATEFUL, Biased, nir.NIRGraph)):
            self.refused.append(f"module '{title}' is called twice, but a neuron in NIR has one state")
        self.nodes[name] = node
        self.edges += [(source, name) for source in inputs]
        return [name]

    def _settle_biases(self) -> None:
        """Add the constant input of a neuron to the bias of a linear node that feeds it alone."""
        for name, node in self.nodes.items():
            if not isinstance(node, Biased):
                continue
            for source in (a for a, b in self.edges if b == name):
                before = self.nodes[source]
                alone = [b for a, b in self.edges if a == source] == [name]
                if alone and isinstance(before, nir.Affine | nir.Conv1d | nir.Conv2d):
                    before.bias = before.bias + np.broadcast_to(node.bias.flatten(), before.bias.shape)
                    self.nodes[name] = node.neuron
                    break
            else:
                raise InputError(
                    f"{self.name}: module '{name}': its leak needs a linear layer with bias before it"
                )
