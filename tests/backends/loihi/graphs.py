"""Small canonical graphs for the tests of Loihi 2."""

from itertools import pairwise
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.export import Contract, Graph, canonical

DT = 1e-3


def chain(*nodes: nir.NIRNode, shape: tuple[int, ...], name: str = "test", **contract: Any) -> Graph:
    """input -> n1 -> n2 -> ... -> output, nodes named by their place."""
    named = {f"n{number}": node for number, node in enumerate(nodes, start=1)}
    return joined(named, list(pairwise(["input", *named, "output"])), shape, name, **contract)


def joined(
    nodes: dict[str, nir.NIRNode],
    edges: list[tuple[str, str]],
    shape: tuple[int, ...],
    name: str = "test",
    **contract: Any,
) -> Graph:
    """Any graph with one input and one output."""
    whole = {"input": nir.Input(np.array(shape)), **nodes, "output": nir.Output(None)}
    graph = nir.NIRGraph(whole, edges, type_check=False)
    return canonical(graph, Contract(**{"dt": DT, **contract}), name)


def lif(n: int, tau: float = 8e-3, threshold: float = 1.0, **more: float) -> nir.LIF:
    """`n` equal neurons, or channels of them where `n` is a tuple."""
    values = {"v_leak": 0.0, "v_reset": 0.0, "r": 1.0} | more
    return nir.LIF(
        tau=np.full(n, tau),
        v_threshold=np.full(n, threshold),
        **{k: np.full(n, v) for k, v in values.items()},
    )


def convolutions(seed: int = 0, side: int = 24) -> Graph:
    """Sum-pool, conv, LIF with two time constants, avg-pool, conv, LIF, conv, LI: the shape of our models."""
    rng = np.random.default_rng(seed)

    def conv(out: int, inside: int, kernel: int, strength: float) -> nir.Conv2d:
        weight = rng.normal(0.25, 1, (out, inside, kernel, kernel)) * strength
        pad = kernel // 2
        return nir.Conv2d(None, weight.astype(np.float32), 1, pad, 1, 1, np.zeros(out, np.float32))

    def channels(values: list[float]) -> NDArray[np.float32]:
        return np.array(values, np.float32)[:, None, None]

    two, none = np.array([2, 2]), np.array([0, 0])
    one = channels([1.0])
    return chain(
        nir.SumPool2d(two, two, none),
        conv(6, 2, 5, 1.1),
        nir.LIF(
            channels([4e-3] * 3 + [8e-3] * 3),
            channels([1.0] * 6),
            0 * channels([1.0] * 6),
            channels([1.0] * 6),
        ),
        nir.AvgPool2d(two, two, none),
        conv(8, 6, 3, 6.0),
        nir.LIF(channels([4e-3] * 8), channels([1.0] * 8), 0 * channels([1.0] * 8), channels([1.0] * 8)),
        conv(2, 8, 3, 0.5),
        nir.LI(one * 5e-3, one, one * 0),
        shape=(2, side, side),
        output="membrane",
    )
