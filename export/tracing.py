"""From a torch module to a graph: nirtorch's tracer finds the modules and how they are connected.

Additions become edges to the same node, which sums them. Everything else must be a module of the node map in
`modules.py`; what is not is refused by name, all of it at once.
"""

import inspect
import operator
from collections import Counter
from typing import Any

import nir
import numpy as np
import torch
from nirtorch.torch_tracer import NIRTorchTracer
from torch import Tensor, fx, nn

from nrf.errors import INDENT, InputError
from nrf.export.canonical import canonical
from nrf.export.contract import Contract
from nrf.export.graph import STATEFUL, Graph
from nrf.export.modules import Biased, Refused, convert, known

ADDITIONS = (operator.add, operator.iadd, torch.add, "add", "add_")
CHECKS = (fx._symbolic_trace._assert_is_none, torch._assert)  # put in by the tracer


class Tracer(NIRTorchTracer):  # type: ignore[misc]
    """Stops at every module that the node map knows or refuses."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether to look inside."""
        return known(m) or bool(super().is_leaf_module(m, module_qualified_name))


def from_torch(module: nn.Module, sample: Tensor, contract: Contract, name: str = "model") -> Graph:
    """The graph of a torch module: Norse cells, nrf neurons, and torch's linear layers.

    `sample` is the input of one time step as the module takes it, batch first; only its shape counts.

    >>> import norse.torch
    >>> model = norse.torch.SequentialState(nn.Conv2d(2, 8, 3), norse.torch.LIFBoxCell())
    >>> from_torch(model, torch.zeros(1, 2, 32, 32), Contract(dt=1e-3)).neurons
    ['1']
    """
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
    return canonical(_Calls(root, traced, contract, name).graph(tuple(sample.shape[1:])), contract, name)


class _Calls:
    """One pass over the traced calls. `sources` holds, for each call, the nodes whose sum it stands for."""

    def __init__(self, root: nn.Module, traced: fx.Graph, contract: Contract, name: str) -> None:
        self.root, self.traced, self.contract, self.name = root, traced, contract, name
        self.nodes: dict[str, nir.NIRNode] = {}
        self.edges: list[tuple[str, str]] = []
        self.sources: dict[fx.Node, list[str]] = {}
        self.stateful: set[fx.Node] = set()  # calls that return (output, state)
        self.calls: Counter[str] = Counter()  # how often each module was called
        self.refused: list[str] = []

    def graph(self, shape: tuple[int, ...]) -> nir.NIRGraph:
        self.nodes["input"] = nir.Input(np.array(shape))
        for call in self.traced.nodes:
            self._visit(call)
        if self.refused:
            raise InputError(INDENT.join(f"{self.name}: {line}" for line in self.refused))
        self._settle_biases()
        return nir.NIRGraph(self.nodes, self.edges, type_check=False)

    def _visit(self, call: fx.Node) -> None:
        arguments = [a for a in call.args if isinstance(a, fx.Node)]
        inputs = [source for node in arguments for source in self.sources.get(node, [])]
        title = str(getattr(call.target, "__name__", call.target))
        if call.op == "placeholder":
            self.sources[call] = [] if self.sources else ["input"]
            if not self.sources[call] and any(user.target not in CHECKS for user in call.users):
                self.refused.append(f"argument '{call.target}' is a second input, a graph has one")
        elif call.op == "output":
            self._output(call.args[0])
        elif call.op == "call_module":
            self.calls[title] += 1
            name = title if self.calls[title] == 1 else f"{title}_{self.calls[title] - 1}"
            self.sources[call] = self._add(call, title, name, self.root.get_submodule(title), inputs)
        elif call.target is operator.getitem and arguments[0] in self.stateful:
            self.sources[call] = inputs if call.args[1] == 0 else []  # the rest is state
        elif call.target in ADDITIONS and len(arguments) == 2 == len(call.args) and not call.kwargs:
            self.sources[call] = inputs
        elif call.target in (torch.flatten, "flatten"):
            given = dict(zip(("start_dim", "end_dim"), call.args[1:], strict=False)) | call.kwargs
            layer = nn.Flatten(**({"start_dim": 0} | given))  # type: ignore[arg-type]
            self.sources[call] = self._add(call, call.name, call.name, layer, inputs)
        elif call.target not in CHECKS:
            self.refused.append(f"function '{title}' has no node in NIR; use modules and additions only")

    def _output(self, result: Any) -> None:
        """What the module returns, or the first of it: the rest is state."""
        while isinstance(result, tuple | list) and result:
            result = result[0]
        if not isinstance(result, fx.Node):
            self.refused.append(f"its forward returns {type(result).__name__}, expected a tensor first")
            return
        self.nodes["output"] = nir.Output(None)
        self.edges += [(source, "output") for source in self.sources.get(result, [])]

    def _add(self, call: fx.Node, title: str, name: str, module: nn.Module, inputs: list[str]) -> list[str]:
        try:
            node = convert(module, self.contract)
        except Refused as reason:
            self.stateful.add(call)  # one word about it is enough
            self.refused.append(f"module '{title}' ({type(module).__name__}): {reason}")
            return [name]
        if node is None:
            return inputs
        while name in self.nodes:
            name += "_"
        if isinstance(node, (*STATEFUL, Biased, nir.NIRGraph)):
            self.stateful.add(call)
        if name != title and call in self.stateful:
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
