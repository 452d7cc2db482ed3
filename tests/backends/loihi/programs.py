"""Random programs for Loihi 2, small, and as hostile as the number formats allow."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from nrf.backends.loihi.program import LoihiProgram, Neurons, Synapses
from nrf.backends.loihi.run import LAVA
from nrf.backends.lowering.operators import Conv, Matrix, Operator
from nrf.export.contract import Contract

INPUT = (2, 5, 6)
Draw = st.DrawFn


def _integers(
    draw: Draw, rng: np.random.Generator, groups: int, low: int, high: int, special: list[int]
) -> np.ndarray:
    """One value for all, or one per group: special ones, small ones, or any."""
    kind = draw(st.sampled_from(["special", "small", "any"]))
    if kind == "special":
        values = rng.choice(special, groups)
    else:
        values = rng.integers(
            max(low, -20) if kind == "small" else low,
            min(high, 20) if kind == "small" else high,
            groups,
            endpoint=True,
        )
    return (np.full(groups, values[0]) if draw(st.booleans()) else values).astype(np.int32)


def _neurons(draw: Draw, rng: np.random.Generator, shape: tuple[int, ...]) -> Neurons:
    groups = int(draw(st.sampled_from([1, shape[0], int(np.prod(shape))])))
    limit = 2**23 - 1
    return Neurons(
        shape=shape,
        du=_integers(draw, rng, groups, -1, 4095, [-1, 0, 4095]),
        dv=_integers(draw, rng, groups, 0, 4095, [0, 1, 4095]),
        vth=_integers(draw, rng, groups, 0, 131071, [0, 1, 100, 131071, 131072]),
        bias_mant=_integers(draw, rng, groups, -4096, 4095, [0, 0, 0, -4096, 4095]),
        bias_exp=_integers(draw, rng, groups, 0, 7, [0, 7]),
        u0=_integers(draw, rng, groups, -limit, limit, [0, 0, limit, -limit]),
        v0=_integers(draw, rng, groups, -limit, limit, [0, 0, limit, -limit]),
        scale=np.ones(groups),
        offset=np.zeros(groups),
        subtracts=draw(st.integers(0, 2)) == 0,
    )


def _weights(draw: Draw, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    low, high = draw(st.sampled_from([(-128, 127), (-3, 3), (0, 127), (-128, 0), (100, 127)]))
    weight = rng.integers(low, high, shape, endpoint=True).astype(np.int8)
    return (weight * (rng.random(shape) < draw(st.sampled_from([0.1, 0.6, 1.0])))).astype(np.int8)


@st.composite
def convs(draw: Draw, rng: np.random.Generator, shape: tuple[int, int, int]) -> Conv:
    """A convolution that fits a map of `shape`."""
    groups = draw(st.sampled_from([g for g in (1, 2) if shape[0] % g == 0]))
    kernel = [draw(st.integers(1, min(3, size))) for size in shape[1:]]
    out = groups * draw(st.integers(1, 2))
    pair = lambda low, high: (draw(st.integers(low, high)), draw(st.integers(low, high)))  # noqa: E731
    dilation = tuple(
        draw(st.integers(1, 2)) if k > 1 and 2 * (k - 1) < size else 1
        for k, size in zip(kernel, shape[1:], strict=True)
    )
    return Conv(
        _weights(draw, rng, (out, shape[0] // groups, *kernel)),
        shape,
        pair(1, 3),
        pair(0, 2),
        dilation,
        groups,
    )


@st.composite
def programs(draw: Draw, prefix: str = "") -> LoihiProgram:
    """One to three populations, each fed by some before it, and sometimes by itself or by a later one."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    shapes: dict[str, tuple[int, ...]] = {"input": INPUT}
    neurons: dict[str, Neurons] = {}
    synapses: list[Synapses] = []

    def connect(source: str, target: str, operator: Operator) -> None:
        # Few negative exponents and delays: each may cost Lava a process of its own.
        exponent = draw(st.integers(-8, -1) if draw(st.integers(0, 4)) == 0 else st.integers(0, 7))
        delay = draw(st.sampled_from([0, 0, 0, 0, 1, 3]))
        synapses.append(Synapses(source, target, operator, exponent, delay))
        if draw(st.integers(0, 2)) == 0:  # a wide weight: a second synapse for what the first rounds away
            conv = operator if isinstance(operator, Conv) else None
            rest = _weights(draw, rng, conv.weight.shape if conv else operator.matrix().shape)
            fine = replace(conv, weight=rest) if conv else Matrix(sparse.csr_array(rest))
            synapses.append(Synapses(source, target, fine, max(exponent - 8, 0), delay))

    def matrix(source: str, target: str) -> Matrix:
        size = int(np.prod(shapes[target])), int(np.prod(shapes[source]))
        return Matrix(sparse.csr_array(_weights(draw, rng, size)))

    for number in range(draw(st.sampled_from([1, 1, 1, 2, 2, 3]))):
        name = f"{prefix}{number}"
        source = draw(st.sampled_from(sorted(shapes)))
        if len(shapes[source]) == 3 and draw(st.booleans()):
            conv = draw(convs(rng, shapes[source]))  # type: ignore[arg-type]
            shapes[name] = conv.output_shape
            connect(source, name, conv)
        else:
            shapes[name] = (draw(st.integers(1, 7)),)
            connect(source, name, matrix(source, name))
        neurons[name] = _neurons(draw, rng, shapes[name])
        if draw(st.integers(0, 3)) == 0:  # a second branch
            other = draw(st.sampled_from(sorted(shapes)))
            connect(other, name, matrix(other, name))
    if draw(st.integers(0, 3)) == 0:  # back to any population, itself included
        late, early = draw(st.sampled_from(sorted(neurons))), draw(st.sampled_from(sorted(neurons)))
        connect(late, early, matrix(late, early))
    return LoihiProgram(
        f"random{prefix}", "loihi2", LAVA, Contract(dt=1.0), "input", INPUT, (name,), neurons, tuple(synapses)
    )


def side_by_side(parts: list[LoihiProgram]) -> LoihiProgram:
    """Programs that share nothing but the input, as one: starting Lava is what takes time."""
    neurons = {name: one for part in parts for name, one in part.neurons.items()}
    synapses = tuple(one for part in parts for one in part.synapses)
    return LoihiProgram(
        "side by side", "loihi2", LAVA, parts[0].contract, "input", INPUT, parts[0].outputs, neurons, synapses
    )


@st.composite
def clips(draw: Draw, steps: int) -> np.ndarray:
    """Graded input: mostly silence, sometimes large."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    largest = draw(st.sampled_from([1, 1, 3, 200]))
    values = rng.integers(-largest if largest > 1 else 0, largest, (steps, *INPUT), endpoint=True)
    return values * (rng.random((steps, *INPUT)) < draw(st.sampled_from([0.05, 0.3, 1.0])))
