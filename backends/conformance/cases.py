"""Small graphs with inputs, one per node type and per known trap. Any backend is run through all of them.

Weights of `if` neurons are multiples of 1/16 and their threshold is 1, so that 8-bit chips can hold them
exactly: no spike hangs on a rounding, and sums that come to just the threshold show who fires at equality.

    if     v <- v + x, reset to zero          (r = 1/dt): what every chip here has
    lif    v <- v + dt/tau (r x - v)          dt/tau = 1/8 unless said otherwise
"""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import nir
import numpy as np
from numpy.typing import NDArray

from nrf.backends.conformance.ladder import Clip, Tolerances
from nrf.errors import InputError
from nrf.export import Contract, Graph, canonical, read_graph, write_graph
from nrf.files import whole_file

DT = 1e-3  # seconds
PLAIN = Contract(dt=DT)
SUBTRACT = Contract(dt=DT, reset="subtract", fire="ge")  # as Sinabs does
Nodes = dict[str, nir.NIRNode]


@dataclass(frozen=True)
class Case:
    """A graph, one input, and tolerances that replace the target's rung by rung."""

    name: str
    about: str  # what it would catch
    graph: Graph
    clip: Clip
    tolerances: Tolerances = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """How a case is made, and what it would catch."""

    name: str
    about: str
    make: Callable[[np.random.Generator], "Draft"]
    tolerances: Tolerances


@dataclass(frozen=True)
class Draft:
    """What a recipe gives. Without edges the nodes form a chain from input to output."""

    nodes: Nodes
    frames: NDArray[Any]
    edges: Sequence[tuple[str, str]] | None = None
    contract: Contract = PLAIN


RECIPES: dict[str, Recipe] = {}


def recipe(**tolerances: dict[str, float]) -> Callable[[Callable[[np.random.Generator], Draft]], None]:
    """Register a case under its function's name; its docstring says what it would catch."""

    def register(make: Callable[[np.random.Generator], Draft]) -> None:
        name = make.__name__
        RECIPES[name] = Recipe(name, (make.__doc__ or "").strip(), make, tolerances)

    return register


def make_case(name: str) -> Case:
    """One case by name, the same in every process.

    >>> make_case("conv2d").graph.neurons
    ['neurons']
    """
    made = RECIPES[name]
    draft = made.make(np.random.default_rng(zlib.crc32(name.encode())))
    frames = draft.frames.astype(np.float32)
    nodes = {
        "input": nir.Input({"input": np.array(frames.shape[1:])}),
        **draft.nodes,
        "output": nir.Output(None),
    }
    order = list(nodes)
    edges = list(draft.edges or pairwise(order))
    graph = canonical(nir.NIRGraph(nodes, edges, type_check=False), draft.contract, name)
    return Case(name, made.about, graph, Clip(name, frames), made.tolerances)


def all_cases(names: Sequence[str] | None = None) -> list[Case]:
    """All cases, or those named."""
    return [make_case(name) for name in (names or RECIPES)]


def write_cases(folder: str | Path) -> None:
    """Write every case as a folder of its own, for other tools: model.nir, input.npz, case.json."""
    for case in all_cases():
        place = Path(folder) / case.name
        place.mkdir(parents=True, exist_ok=True)
        write_graph(place / "model.nir", case.graph)
        with whole_file(place / "input.npz") as part, part.open("wb") as file:
            np.savez_compressed(file, frames=case.clip.frames)
        with whole_file(place / "case.json") as part:
            part.write_text(json.dumps({"about": case.about, "tolerances": case.tolerances}, indent=1))


def read_case(folder: str | Path) -> Case:
    """Read what `write_cases` wrote, or a case that somebody added in the same form."""
    place = Path(folder)
    try:
        about = json.loads((place / "case.json").read_text())
        with np.load(place / "input.npz", allow_pickle=False) as content:
            clip = Clip(place.name, content["frames"])
        return Case(place.name, about["about"], read_graph(place / "model.nir"), clip, about["tolerances"])
    except (OSError, KeyError, ValueError) as error:
        raise InputError(
            f"{place}: not a case, it needs model.nir, input.npz and case.json ({error})"
        ) from error


# Building blocks.


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


# One per node type. Synapses end in `if` neurons, which every chip here has.


@recipe()
def conv2d(rng: np.random.Generator) -> Draft:
    """Conv2d: kernels flipped, transposed, or with input and output channels exchanged"""
    return Draft({"conv": conv(weights(rng, 3, 2, 3, 3)), "neurons": if_(3, 7, 7)}, events(rng, 2, 7, 7))


@recipe()
def conv2d_rectangle(rng: np.random.Generator) -> Draft:
    """Conv2d on a map that is not square: height and width exchanged"""
    return Draft({"conv": conv(weights(rng, 2, 2, 3, 3)), "neurons": if_(2, 5, 9)}, events(rng, 2, 5, 9))


@recipe()
def conv2d_stride(rng: np.random.Generator) -> Draft:
    """Conv2d with stride 2: sampled at the wrong phase"""
    node = conv(weights(rng, 3, 2, 3, 3), stride=2)
    return Draft({"conv": node, "neurons": if_(3, 4, 4)}, events(rng, 2, 8, 8))


@recipe()
def conv2d_dilation(rng: np.random.Generator) -> Draft:
    """Conv2d with dilation 2: taken as dense"""
    node = conv(weights(rng, 2, 2, 3, 3), dilation=2, padding=2)
    return Draft({"conv": node, "neurons": if_(2, 8, 8)}, events(rng, 2, 8, 8))


@recipe()
def conv2d_groups(rng: np.random.Generator) -> Draft:
    """Conv2d with two groups: mixed across groups"""
    node = conv(weights(rng, 4, 1, 3, 3), groups=2)
    return Draft({"conv": node, "neurons": if_(4, 6, 6)}, events(rng, 2, 6, 6))


@recipe()
def conv1d(rng: np.random.Generator) -> Draft:
    """Conv1d: one axis too many or too few"""
    node = nir.Conv1d(None, weights(rng, 3, 2, 3), 1, 1, 1, 1, np.zeros(3))
    return Draft({"conv": node, "neurons": if_(3, 12)}, events(rng, 2, 12))


@recipe()
def linear(rng: np.random.Generator) -> Draft:
    """Linear: rows and columns exchanged"""
    return Draft({"linear": nir.Linear(weights(rng, 5, 8)), "neurons": if_(5)}, events(rng, 8, rate=0.1))


@recipe()
def affine(rng: np.random.Generator) -> Draft:
    """Affine: its bias lost, or added per spike instead of per step"""
    node = nir.Affine(weights(rng, 5, 8), weights(rng, 5, low=0, high=4) / 2)
    return Draft({"affine": node, "neurons": if_(5)}, events(rng, 8, rate=0.1))


@recipe()
def sum_pool(rng: np.random.Generator) -> Draft:
    """SumPool2d before a convolution: taken as an average or as a maximum"""
    pool = nir.SumPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0]))
    nodes = {"pool": pool, "conv": conv(weights(rng, 2, 2, 3, 3)), "neurons": if_(2, 4, 4)}
    return Draft(nodes, events(rng, 2, 8, 8, rate=0.02))


@recipe()
def avg_pool(rng: np.random.Generator) -> Draft:
    """AvgPool2d before a convolution: the division by the area lost"""
    pool = nir.AvgPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0]))
    nodes = {"pool": pool, "conv": conv(weights(rng, 2, 2, 3, 3, high=24)), "neurons": if_(2, 4, 4)}
    return Draft(nodes, events(rng, 2, 8, 8))


@recipe()
def flatten(rng: np.random.Generator) -> Draft:
    """Flatten between map and matrix: channels last instead of channels first"""
    nodes = {
        "conv": conv(weights(rng, 2, 1, 3, 3)),
        "hidden": if_(2, 4, 4),
        "flatten": nir.Flatten({"input": np.array([2, 4, 4])}, 0, -1),
        "linear": nir.Linear(weights(rng, 6, 32, low=-2, high=5)),
        "neurons": if_(6),
    }
    return Draft(nodes, events(rng, 1, 4, 4, rate=0.04))


@recipe()
def scale(rng: np.random.Generator) -> Draft:
    """Scale before the neurons: a factor per channel lost"""
    factors = np.array([0.5, 1.0, 2.0])[:, None, None] * np.ones((3, 6, 6))
    nodes = {"conv": conv(weights(rng, 3, 2, 3, 3)), "scale": nir.Scale(factors), "neurons": if_(3, 6, 6)}
    return Draft(nodes, events(rng, 2, 6, 6))


@recipe()
def delay(rng: np.random.Generator) -> Draft:
    """Delay of three steps: off by one"""
    nodes = {
        "delay": nir.Delay(np.full(8, 3 * DT)),
        "linear": nir.Linear(weights(rng, 5, 8)),
        "neurons": if_(5),
    }
    return Draft(nodes, events(rng, 8, rate=0.1))


@recipe()
def threshold(rng: np.random.Generator) -> Draft:
    """Threshold: fires on this step's input alone, no memory"""
    nodes = {"linear": nir.Linear(weights(rng, 6, 8)), "neurons": nir.Threshold(np.ones(6))}
    return Draft(nodes, events(rng, 8, rate=0.3))


@recipe()
def if_zero(rng: np.random.Generator) -> Draft:
    """IF, reset to zero: what is above the threshold must be lost"""
    return Draft({"linear": nir.Linear(weights(rng, 6, 8)), "neurons": if_(6)}, events(rng, 8, rate=0.1))


@recipe()
def if_subtract(rng: np.random.Generator) -> Draft:
    """IF, reset by subtraction: what is above the threshold must stay"""
    nodes = {"linear": nir.Linear(weights(rng, 6, 8)), "neurons": if_(6)}
    return Draft(nodes, events(rng, 8, rate=0.1), contract=SUBTRACT)


@recipe()
def if_floor(rng: np.random.Generator) -> Draft:
    """IF with a floor at zero: negative drive must be forgotten"""
    nodes = {"linear": nir.Linear(weights(rng, 6, 8, low=-10)), "neurons": if_(6)}
    return Draft(nodes, events(rng, 8, rate=0.1), contract=replace(SUBTRACT, v_min=0.0))


@recipe()
def lif_neuron(rng: np.random.Generator) -> Draft:
    """LIF: dt/tau applied to the state but not to the input, or the other way round"""
    nodes = {"linear": nir.Linear(weights(rng, 6, 8, high=40)), "neurons": lif(6)}
    return Draft(nodes, events(rng, 8, rate=0.3))


@recipe()
def lif_rest_and_reset(rng: np.random.Generator) -> Draft:
    """LIF that rests at 0.125 and resets to -0.25: v_leak or v_reset lost"""
    node = lif(6, v_leak=np.full(6, 0.125), v_reset=np.full(6, -0.25))
    return Draft(
        {"linear": nir.Linear(weights(rng, 6, 8, high=40)), "neurons": node}, events(rng, 8, rate=0.3)
    )


@recipe()
def cuba_lif(rng: np.random.Generator) -> Draft:
    """CubaLIF: synaptic and membrane time constants exchanged, current reset with the voltage"""
    node = nir.CubaLIF(
        tau_syn=np.full(6, DT * 4), tau_mem=np.full(6, DT * 8), r=np.ones(6), v_leak=np.zeros(6),
        v_threshold=np.full(6, 0.52), v_reset=np.zeros(6), w_in=np.ones(6),
    )  # fmt: skip
    return Draft(
        {"linear": nir.Linear(weights(rng, 6, 8, high=40)), "neurons": node}, events(rng, 8, rate=0.3)
    )


@recipe()
def integrator(rng: np.random.Generator) -> Draft:
    """I: an integrator that never fires and never forgets"""
    nodes = {"linear": nir.Linear(weights(rng, 4, 8, low=-8, high=9)), "neurons": nir.I(np.full(4, 1 / DT))}
    return Draft(nodes, events(rng, 8, rate=0.1), contract=Contract(dt=DT, output="membrane"))


@recipe()
def li(rng: np.random.Generator) -> Draft:
    """LI after LIF: an output that is read as a membrane must never fire"""
    nodes = {
        "linear": nir.Linear(weights(rng, 6, 8, high=40)),
        "hidden": lif(6),
        "out": nir.Linear(weights(rng, 3, 6, low=-14)),
        "neurons": nir.LI(np.full(3, DT * 16), np.ones(3), np.zeros(3)),
    }
    return Draft(nodes, events(rng, 8, rate=0.3), contract=Contract(dt=DT, output="membrane"))


@recipe()
def cuba_li(rng: np.random.Generator) -> Draft:
    """CubaLI: the same with a synaptic current"""
    node = nir.CubaLI(
        tau_syn=np.full(4, DT * 4), tau_mem=np.full(4, DT * 8), r=np.ones(4), v_leak=np.zeros(4),
        w_in=np.ones(4),
    )  # fmt: skip
    nodes = {"linear": nir.Linear(weights(rng, 4, 8, high=40)), "neurons": node}
    return Draft(nodes, events(rng, 8, rate=0.3), contract=Contract(dt=DT, output="membrane"))


# One per known trap.


@recipe()
def threshold_grazing(rng: np.random.Generator) -> Draft:
    """Sums that come to exactly the threshold: must not fire one step early or late"""
    frames = np.zeros((64, 4), bool)
    frames[:, 0] = True  # 1/16 per step: reaches the threshold after 16 steps, passes it at 17
    frames[::3, 1:] = True
    weight = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 3, -2, 0], [2, 0, 0, -1]]) / 16
    return Draft({"linear": nir.Linear(weight), "neurons": if_(4)}, frames)


@recipe(L1={"f1_jitter_min": 0.9}, L2={"f1_jitter_min": 0.9})
def leak_grazing(rng: np.random.Generator) -> Draft:
    """A LIF whose constant drive settles 1 % above its threshold: rounding the decay moves spikes by steps"""
    weight = np.array([[0.52 * 1.01], [0.52 * 1.05], [0.52 * 0.99]])
    nodes = {"linear": nir.Linear(weight), "neurons": lif(3)}
    return Draft(nodes, np.ones((96, 1)))


@recipe(L1={"f1_min": 0.98})
def saturation(rng: np.random.Generator) -> Draft:
    """All inputs at every step, weights at both ends of the range: states may saturate but must not wrap"""
    weight = np.sign(rng.normal(size=(4, 2, 5, 5))) * 127 / 16
    frames = np.ones((80, 2, 6, 6), bool)
    return Draft({"conv": conv(weight), "neurons": if_(4, 6, 6, threshold=200.0)}, frames)


@recipe()
def negative_drive(rng: np.random.Generator) -> Draft:
    """Long inhibition, then excitation: the deep negative state must come back in the same step"""
    frames = np.zeros((120, 2), bool)
    frames[:40, 0] = True
    frames[40:, 1] = True
    weight = np.array([[-1.0, 1.0], [-0.5, 1.0], [-2.0, 2.5]])
    return Draft({"linear": nir.Linear(weight), "neurons": if_(3)}, frames)


@recipe()
def long_silence(rng: np.random.Generator) -> Draft:
    """Three hundred silent steps below threshold, then one event: what is left of the state decides"""
    frames = np.zeros((330, 6), bool)
    frames[:10] = events(rng, 6, steps=10, rate=0.5)
    frames[-20:] = events(rng, 6, steps=20, rate=0.5)
    return Draft({"linear": nir.Linear(weights(rng, 6, 6, low=0, high=5)), "neurons": if_(6)}, frames)


@recipe()
def long_decay(rng: np.random.Generator) -> Draft:
    """The same with a leak: integers that stop to decay one above zero"""
    frames = np.zeros((330, 6), bool)
    frames[:10] = events(rng, 6, steps=10, rate=0.5)
    frames[-20:] = events(rng, 6, steps=20, rate=0.5)
    return Draft({"linear": nir.Linear(weights(rng, 6, 6, low=0, high=40)), "neurons": lif(6)}, frames)


@recipe()
def two_branches(rng: np.random.Generator) -> Draft:
    """Two paths of different length into one population: both must arrive in the contract's step"""
    nodes = {
        "left": conv(weights(rng, 2, 2, 3, 3)), "hidden": if_(2, 6, 6),
        "right": conv(weights(rng, 2, 2, 1, 1)), "join": conv(weights(rng, 2, 2, 3, 3)),
        "neurons": if_(2, 6, 6),
    }  # fmt: skip
    edges = [
        ("input", "left"), ("left", "hidden"), ("hidden", "join"), ("join", "neurons"),
        ("input", "right"), ("right", "neurons"), ("neurons", "output"),
    ]  # fmt: skip
    return Draft(nodes, events(rng, 2, 6, 6), edges)


@recipe()
def recurrence(rng: np.random.Generator) -> Draft:
    """Neurons that hear their own spikes of the step before, not of two steps before"""
    back = -np.eye(5) * 0.5 + np.roll(np.eye(5), 1, axis=0) * 0.25
    nodes = {"linear": nir.Linear(weights(rng, 5, 8)), "back": nir.Linear(back), "neurons": if_(5)}
    edges = [
        ("input", "linear"), ("linear", "neurons"), ("neurons", "back"), ("back", "neurons"),
        ("neurons", "output"),
    ]  # fmt: skip
    return Draft(nodes, events(rng, 8, rate=0.15), edges)


@recipe()
def channel_time_constants(rng: np.random.Generator) -> Draft:
    """A time constant per channel: one taken for all, or spread along the wrong axis"""
    decays = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 16])
    nodes = {"conv": conv(weights(rng, 4, 2, 3, 3, high=24)), "neurons": lif(4, 4, 4, decay=decays)}
    return Draft(nodes, events(rng, 2, 4, 4, rate=0.3))


@recipe()
def biases(rng: np.random.Generator) -> Draft:
    """A convolution with a bias per channel and hardly any events: the bias alone makes it fire"""
    node = conv(weights(rng, 4, 2, 3, 3), bias=0.0)
    node.bias = np.array([1 / 16, 2 / 16, 4 / 16, -1 / 16])
    return Draft({"conv": node, "neurons": if_(4, 5, 5)}, events(rng, 2, 5, 5, rate=0.02))


@recipe()
def graded_input(rng: np.random.Generator) -> Draft:
    """Several events at one pixel in one step: counted, not clipped to one"""
    frames = rng.integers(1, 4, (100, 8)) * events(rng, 8, rate=0.08)
    return Draft({"linear": nir.Linear(weights(rng, 5, 8)), "neurons": if_(5)}, frames)


@recipe()
def deep_chain(rng: np.random.Generator) -> Draft:
    """Four layers: the latency that each adds must be declared, and no more"""
    nodes: Nodes = {}
    for depth in range(4):
        nodes[f"linear{depth}"] = nir.Linear(weights(rng, 8, 8, low=-4, high=9))
        nodes[f"neurons{depth}"] = if_(8)
    return Draft(nodes, events(rng, 8, rate=0.1))


@recipe()
def strange_names(rng: np.random.Generator) -> Draft:
    """Names that HTML, file names or format strings could trip over"""
    first, second = '<b>"conv" & co', "<!--<script>{neurons} %s"
    return Draft({first: nir.Linear(weights(rng, 4, 6)), second: if_(4)}, events(rng, 6, rate=0.1))
