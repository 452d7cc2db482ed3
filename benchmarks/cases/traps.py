"""One case per known trap: what has gone wrong before, here or elsewhere.

Cases in which many events or spikes fall into one step promise nothing about asynchronous chips (an empty
section): those take the events one by one, reset in between, and fire more often. Their figures are reported.
"""

import nir
import numpy as np

from benchmarks.cases.recipes import DT, Draft, Nodes, conv, events, if_, lif, recipe, weights
from nrf.export import Contract


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


@recipe(L2_asynchronous={})
def saturation(rng: np.random.Generator) -> Draft:
    """All inputs at once, three events each, weights at both ends of the range: sums must not wrap"""
    weight = np.where(rng.random((4, 2, 5, 5)) < 0.7, 127, -127) / 16
    frames = 3 * np.ones((40, 2, 6, 6))
    return Draft({"conv": conv(weight), "neurons": if_(4, 6, 6, threshold=512.0)}, frames)


@recipe()
def negative_drive(rng: np.random.Generator) -> Draft:
    """Long inhibition, then excitation: the deep negative state must come back in the same step"""
    frames = np.zeros((120, 2), bool)
    frames[:40, 0] = True
    frames[40:, 1] = True
    weight = np.array([[-1.0, 1.0], [-0.5, 1.0], [-2.0, 2.5]])
    return Draft({"linear": nir.Linear(weight), "neurons": if_(3)}, frames)


def silence(rng: np.random.Generator, neurons: nir.NIRNode, rate: float, high: int) -> Draft:
    """Three hundred silent steps between events; all weights are positive."""
    frames = np.zeros((330, 6), bool)
    frames[:10] = events(rng, 6, steps=10, rate=rate)
    frames[-20:] = events(rng, 6, steps=20, rate=rate)
    return Draft({"linear": nir.Linear(weights(rng, 6, 6, low=0, high=high)), "neurons": neurons}, frames)


@recipe()
def long_silence(rng: np.random.Generator) -> Draft:
    """Three hundred silent steps below threshold, then one event: what is left of the state decides"""
    return silence(rng, if_(6), rate=0.3, high=5)


@recipe()
def long_decay(rng: np.random.Generator) -> Draft:
    """The same with a leak: integers that stop to decay one above zero"""
    return silence(rng, lif(6), rate=0.5, high=40)


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


@recipe(L2_asynchronous={})
def two_sources(rng: np.random.Generator) -> Draft:
    """Two populations that meet before one convolution: the second must add to the first, not replace it"""
    nodes = {
        "left": conv(weights(rng, 2, 2, 3, 3)), "one": if_(2, 6, 6),
        "right": conv(weights(rng, 2, 2, 3, 3)), "two": if_(2, 6, 6),
        "join": conv(weights(rng, 2, 2, 3, 3, low=-3, high=6)), "neurons": if_(2, 6, 6),
    }  # fmt: skip
    edges = [
        ("input", "left"), ("left", "one"), ("one", "join"), ("input", "right"), ("right", "two"),
        ("two", "join"), ("join", "neurons"), ("neurons", "output"),
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


@recipe(L2_asynchronous={})
def graded_input(rng: np.random.Generator) -> Draft:
    """Several events at one pixel in one step: counted, not clipped to one"""
    frames = rng.integers(1, 4, (100, 8)) * events(rng, 8, rate=0.08)
    return Draft({"linear": nir.Linear(weights(rng, 5, 8)), "neurons": if_(5)}, frames)


@recipe(L2_asynchronous={})
def deep_chain(rng: np.random.Generator) -> Draft:
    """Four layers: the latency that each adds must be declared, and no more"""
    nodes: Nodes = {}
    for depth in range(4):
        nodes[f"linear{depth}"] = nir.Linear(weights(rng, 8, 8, low=-4, high=9))
        nodes[f"neurons{depth}"] = if_(8)
    return Draft(nodes, events(rng, 8, rate=0.1))


@recipe()
def contract_with_delay(rng: np.random.Generator) -> Draft:
    """A contract that gives each connection a step: chips may be early against it, and must say so"""
    nodes = {
        "linear1": nir.Linear(weights(rng, 8, 8)), "hidden": if_(8),
        "linear2": nir.Linear(weights(rng, 5, 8, low=-3, high=9)), "neurons": if_(5),
    }  # fmt: skip
    return Draft(nodes, events(rng, 8, rate=0.08), contract=Contract(dt=DT, delay=1))


@recipe()
def fires_at_equality(rng: np.random.Generator) -> Draft:
    """A contract that fires at v = threshold, not only above: one unit in the last place"""
    weight = rng.integers(1, 5, (4, 6)) / 8
    nodes = {"linear": nir.Linear(weight), "neurons": if_(4)}
    return Draft(nodes, events(rng, 6, rate=0.08), contract=Contract(dt=DT, fire="ge"))


@recipe()
def strange_names(rng: np.random.Generator) -> Draft:
    """Names that HTML, file names or format strings could trip over"""
    first, second = '<b>"conv" & co', "<!--<script>{neurons} %s"
    return Draft({first: nir.Linear(weights(rng, 4, 6)), second: if_(4)}, events(rng, 6, rate=0.1))
