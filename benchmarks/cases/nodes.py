"""One case per node type. Synapses end in `if` neurons, which every chip here has."""

from dataclasses import replace

import nir
import numpy as np

from benchmarks.cases.recipes import (
    DT,
    MEMBRANE,
    SUBTRACT,
    Draft,
    conv,
    convolved,
    dense,
    events,
    if_,
    lif,
    recipe,
    weights,
)


@recipe()
def conv2d(rng: np.random.Generator) -> Draft:
    """Conv2d: kernels flipped, transposed, or with input and output channels exchanged"""
    return convolved(rng, (3, 7, 7), (2, 7, 7))


@recipe()
def conv2d_rectangle(rng: np.random.Generator) -> Draft:
    """Conv2d on a map that is not square: height and width exchanged"""
    return convolved(rng, (2, 5, 9), (2, 5, 9))


@recipe()
def conv2d_stride(rng: np.random.Generator) -> Draft:
    """Conv2d with stride 2: sampled at the wrong phase"""
    return convolved(rng, (3, 4, 4), (2, 8, 8), stride=2)


@recipe()
def conv2d_dilation(rng: np.random.Generator) -> Draft:
    """Conv2d with dilation 2: taken as dense"""
    return convolved(rng, (2, 8, 8), (2, 8, 8), dilation=2, padding=2)


@recipe()
def conv2d_groups(rng: np.random.Generator) -> Draft:
    """Conv2d with two groups: mixed across groups"""
    return convolved(rng, (4, 6, 6), (2, 6, 6), groups=2)


@recipe()
def conv1d(rng: np.random.Generator) -> Draft:
    """Conv1d: one axis too many or too few"""
    node = nir.Conv1d(None, weights(rng, 3, 2, 3), 1, 1, 1, 1, np.zeros(3))
    return Draft({"conv": node, "neurons": if_(3, 12)}, events(rng, 2, 12))


@recipe()
def linear(rng: np.random.Generator) -> Draft:
    """Linear: rows and columns exchanged"""
    return dense(rng, if_(5), 5)


@recipe()
def affine(rng: np.random.Generator) -> Draft:
    """Affine: its bias lost, or added per spike instead of per step"""
    node = nir.Affine(weights(rng, 5, 8), weights(rng, 5, low=0, high=4) / 2)
    return Draft({"affine": node, "neurons": if_(5)}, events(rng, 8, rate=0.1))


@recipe()
def sum_pool(rng: np.random.Generator) -> Draft:
    """SumPool2d before a convolution: taken as an average or as a maximum"""
    return pooled(rng, nir.SumPool2d, 14, rate=0.02)


@recipe()
def avg_pool(rng: np.random.Generator) -> Draft:
    """AvgPool2d before a convolution: the division by the area lost"""
    return pooled(rng, nir.AvgPool2d, 24, rate=0.03)


def pooled(rng: np.random.Generator, kind: type[nir.NIRNode], high: int, rate: float) -> Draft:
    """Pooling by 2 before a convolution."""
    pool = kind(np.array([2, 2]), np.array([2, 2]), np.array([0, 0]))
    nodes = {"pool": pool, "conv": conv(weights(rng, 2, 2, 3, 3, high=high)), "neurons": if_(2, 4, 4)}
    return Draft(nodes, events(rng, 2, 8, 8, rate=rate))


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
    return dense(rng, nir.Threshold(np.full(6, 1 + 1 / 32)), rate=0.3)


@recipe()
def if_zero(rng: np.random.Generator) -> Draft:
    """IF, reset to zero: what is above the threshold must be lost"""
    return dense(rng, if_(6))


@recipe()
def if_subtract(rng: np.random.Generator) -> Draft:
    """IF, reset by subtraction: what is above the threshold must stay"""
    return dense(rng, if_(6), contract=SUBTRACT)


@recipe()
def if_floor(rng: np.random.Generator) -> Draft:
    """IF with a floor at zero: negative drive must be forgotten"""
    return dense(rng, if_(6), contract=replace(SUBTRACT, v_min=0.0), low=-10)


@recipe()
def lif_neuron(rng: np.random.Generator) -> Draft:
    """LIF: dt/tau applied to the state but not to the input, or the other way round"""
    return dense(rng, lif(6), rate=0.3, high=40)


@recipe()
def lif_rest_and_reset(rng: np.random.Generator) -> Draft:
    """LIF that rests at 0.125 and resets to -0.25: v_leak or v_reset lost"""
    node = lif(6, v_leak=np.full(6, 0.125), v_reset=np.full(6, -0.25))
    return dense(rng, node, rate=0.3, high=40)


@recipe()
def cuba_lif(rng: np.random.Generator) -> Draft:
    """CubaLIF: synaptic and membrane time constants exchanged, current reset with the voltage"""
    node = nir.CubaLIF(
        tau_syn=np.full(6, DT * 4), tau_mem=np.full(6, DT * 8), r=np.ones(6), v_leak=np.zeros(6),
        v_threshold=np.full(6, 0.52), v_reset=np.zeros(6), w_in=np.ones(6),
    )  # fmt: skip
    return dense(rng, node, rate=0.3, high=40)


@recipe()
def integrator(rng: np.random.Generator) -> Draft:
    """I: an integrator that never fires and never forgets"""
    return dense(rng, nir.I(np.full(4, 1 / DT)), 4, contract=MEMBRANE, low=-8, high=9)


@recipe()
def li(rng: np.random.Generator) -> Draft:
    """LI after LIF: an output that is read as a membrane must never fire"""
    nodes = {
        "linear": nir.Linear(weights(rng, 6, 8, high=40)),
        "hidden": lif(6),
        "out": nir.Linear(weights(rng, 3, 6, low=-14)),
        "neurons": nir.LI(np.full(3, DT * 16), np.ones(3), np.zeros(3)),
    }
    return Draft(nodes, events(rng, 8, rate=0.3), contract=MEMBRANE)


@recipe()
def cuba_li(rng: np.random.Generator) -> Draft:
    """CubaLI: the same with a synaptic current"""
    node = nir.CubaLI(
        tau_syn=np.full(4, DT * 4), tau_mem=np.full(4, DT * 8), r=np.ones(4), v_leak=np.zeros(4),
        w_in=np.ones(4),
    )  # fmt: skip
    return dense(rng, node, 4, rate=0.3, contract=MEMBRANE, high=40)
