"""How cases are written down: a function per case, and the few blocks that they are built from.

Weights of `if` neurons are multiples of 1/16 and their threshold is 1, so that 8-bit chips can hold them
exactly: no spike hangs on a rounding, and sums that come to just the threshold show who fires at equality.

    if     v <- v + x, reset to zero          (r = 1/dt): what every chip here has
    lif    v <- v + dt/tau (r x - v)          dt/tau = 1/8 unless said otherwise
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.backends.border import Tolerances
from nrf.export import Contract

DT = 1e-3  # seconds
PLAIN = Contract(dt=DT)
SUBTRACT = Contract(dt=DT, reset="subtract", fire="ge")  # as Sinabs does
MEMBRANE = Contract(dt=DT, output="membrane")
Nodes = dict[str, nir.NIRNode]


@dataclass(frozen=True)
class Draft:
    """What a recipe gives. Without edges the nodes form a chain from input to output."""

    nodes: Nodes
    frames: NDArray[Any]
    edges: Sequence[tuple[str, str]] | None = None
    contract: Contract = PLAIN


@dataclass(frozen=True)
class Recipe:
    """How a case is made, and what it would catch."""

    name: str
    about: str
    make: Callable[[np.random.Generator], "Draft"]
    tolerances: Tolerances


def recipe(**tolerances: dict[str, float]) -> Callable[[Callable[[np.random.Generator], Draft]], Recipe]:
    """Turn a function into the case of that name; its docstring says what the case would catch."""

    def made(make: Callable[[np.random.Generator], Draft]) -> Recipe:
        return Recipe(make.__name__, (make.__doc__ or "").strip(), make, tolerances)

    return made


def events(rng: np.random.Generator, *shape: int, steps: int = 100, rate: float = 0.03) -> NDArray[Any]:
    """Random events (steps, *shape) of 0 and 1."""
    return rng.random((steps, *shape)) < rate


def weights(rng: np.random.Generator, *shape: int, low: int = -6, high: int = 14) -> NDArray[Any]:
    """Random multiples of 1/16, more of them positive."""
    return rng.integers(low, high, shape) / 16


def if_(*shape: int, threshold: float = 1.0) -> nir.IF:
    """Integrate and fire: v <- v + x."""
    return nir.IF(r=np.full(shape, 1 / DT), v_threshold=np.full(shape, threshold), v_reset=np.zeros(shape))


def lif(*shape: int, decay: Any = 1 / 8, threshold: float = 0.52, **more: Any) -> nir.LIF:
    """Leaky integrate and fire with dt/tau = `decay`, which may differ per channel."""
    decay = np.broadcast_to(np.reshape(decay, (-1, *[1] * (len(shape) - 1))), shape)
    given = {"v_leak": np.zeros(shape), "v_reset": np.zeros(shape), **more}
    return nir.LIF(tau=DT / decay, r=np.ones(shape), v_threshold=np.full(shape, threshold), **given)


def conv(weight: NDArray[Any], bias: Any = 0.0, **options: Any) -> nir.Conv2d:
    """A convolution, padded to keep the size of the map unless said otherwise."""
    fields = {"stride": 1, "padding": weight.shape[-1] // 2, "dilation": 1, "groups": 1, **options}
    return nir.Conv2d(input_shape=None, weight=weight, bias=np.full(len(weight), bias), **fields)


def convolved(
    rng: np.random.Generator, shape: tuple[int, int, int], source: tuple[int, int, int], **options: Any
) -> Draft:
    """Events on maps of a shape (`source`), a 3x3 convolution, and `if` neurons of `shape`."""
    weight = weights(rng, shape[0], source[0] // options.get("groups", 1), 3, 3)
    return Draft({"conv": conv(weight, **options), "neurons": if_(*shape)}, events(rng, *source))


def dense(
    rng: np.random.Generator,
    neurons: nir.NIRNode,
    outputs: int = 6,
    rate: float = 0.1,
    contract: Contract = PLAIN,
    **span: int,
) -> Draft:
    """Events on eight lines, a matrix with weights in a `span` (low, high), and the neurons."""
    weight = weights(rng, outputs, 8, **span)
    nodes = {"linear": nir.Linear(weight), "neurons": neurons}
    return Draft(nodes, events(rng, 8, rate=rate), contract=contract)
