"""The built-in simulator computes the equations, to the bit, in pieces of any length."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import Phase, example, find, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nrf.backends.border import Spikes
from nrf.backends.loihi.neuron import Widths, lif
from nrf.backends.loihi.program import LoihiProgram, floors
from nrf.backends.loihi.simulate import Simulator
from nrf.errors import InputError
from nrf.kernels import compiled
from nrf.lanes import bits_of, put, take
from tests.backends.loihi.programs import INPUT, clips, programs

MANY = settings(max_examples=150, deadline=None)


@MANY
@given(programs(), clips(steps=14), st.sets(st.integers(1, 13)) | st.just(set(range(1, 14))))
def test_a_clip_in_pieces_or_in_single_steps_equals_the_clip_in_one(
    program: LoihiProgram, frames: NDArray[np.int64], cuts: set[int]
) -> None:
    whole = Simulator(program).run(frames, record=program.neurons)
    simulator, edges = Simulator(program), [0, *sorted(cuts), 14]
    parts = [simulator.run(frames[a:b], record=program.neurons) for a, b in pairwise(edges)]
    for name in program.neurons:
        np.testing.assert_array_equal(whole.u[name], np.concatenate([part.u[name] for part in parts]))
        np.testing.assert_array_equal(whole.v[name], np.concatenate([part.v[name] for part in parts]))
        spikes = [part.spikes[name].later(start) for part, start in zip(parts, edges, strict=False)]
        assert whole.spikes[name] == Spikes.joined(spikes)
        assert whole.wrapped[name] == sum(part.wrapped[name] for part in parts)
        assert whole.saturated[name] == sum(part.saturated[name] for part in parts)


@MANY
@given(programs(), clips(steps=9), clips(steps=9))
def test_restarted_or_wired_like_another_it_forgets_all(
    program: LoihiProgram, before: NDArray[np.int64], frames: NDArray[np.int64]
) -> None:
    used = Simulator(program)
    used.run(before)
    fresh = Simulator(program, like=used).run(frames, record=program.neurons)
    used.restart()
    again = used.run(frames, record=program.neurons)
    assert again.spikes == fresh.spikes
    for name in program.neurons:
        np.testing.assert_array_equal(again.v[name], fresh.v[name])


@MANY
@given(programs(), clips(steps=10))
def test_simulator_computes_the_equations(program: LoihiProgram, frames: NDArray[np.int64]) -> None:
    """Lava's equations once more, plainly, with matrices and 32-bit NumPy: a test without Lava."""
    trace = Simulator(program).run(frames, record=program.neurons)
    spikes = {program.input: frames.reshape(len(frames), -1)}
    spikes |= {name: np.zeros((len(frames), one.size), np.int64) for name, one in program.neurons.items()}
    u = {name: one.each(one.u0).ravel() for name, one in program.neurons.items()}
    v = {name: one.each(one.v0).ravel() for name, one in program.neurons.items()}
    r = {name: np.zeros(one.size, np.int64) for name, one in program.neurons.items()}
    for t in range(len(frames)):
        for name, one in program.neurons.items():
            a = np.zeros(one.size, np.int32)
            for synapses in program.into(name):
                if (sent := t - 1 - synapses.delay) < 0:
                    continue
                total = synapses.operator.matrix().astype(np.int64) @ spikes[synapses.source][sent]
                total = total << max(synapses.exponent, 0)
                if hasattr(synapses.operator, "stride"):
                    total = (total + 2**23) % 2**24 - 2**23
                a = (a + (total >> max(-synapses.exponent, 0))).astype(np.int32)
            du, dv, vth = (one.each(values).ravel().astype(np.int64) for values in (one.du, one.dv, one.vth))
            bias = one.each(one.bias_mant).ravel().astype(np.int64) << one.each(one.bias_exp).ravel()
            decayed = np.trunc(u[name] * (4095.0 - du) / 4096).astype(np.int32)
            current = decayed + (a.astype(np.int64) << 6).astype(np.int32)
            current = np.where(current > 2**23, current - np.int32(2**24), current)
            current = np.where(current <= -(2**23), current + np.int32(2**24), current)
            u[name] = current
            voltage = (
                np.trunc(v[name] * (4096.0 - dv) / 4096).astype(np.int32) + current + bias.astype(np.int32)
            )
            voltage = np.clip(voltage, 1 - 2**23, 2**23 - 1)
            if one.subtracts:
                taken = np.trunc(r[name] * (4096.0 - dv) / 4096).astype(np.int32)
                spikes[name][t] = voltage - taken >= vth << 6
                v[name], r[name] = voltage, taken + (spikes[name][t] * vth << 7)
                np.testing.assert_array_equal(trace.r[name][t].ravel(), r[name])
            else:
                spikes[name][t] = voltage > vth << 6
                v[name] = np.where(voltage > vth << 6, 0, voltage)
            np.testing.assert_array_equal(trace.u[name][t].ravel(), u[name])
            np.testing.assert_array_equal(trace.v[name][t].ravel(), v[name])


@MANY
@given(programs(), clips(steps=6), st.sampled_from([1, 300, 5000, 7001, 20_011, 10**10]))
def test_counters_of_wraps_and_saturation_tell_the_truth(
    program: LoihiProgram, frames: NDArray[np.int64], factor: int
) -> None:
    """Against sums in 64 bits, step by step from the states that the simulator was in."""
    frames = frames * factor
    try:
        trace = Simulator(program).run(frames, record=program.neurons)
    except InputError as error:  # what no counter could tell
        assert factor > 1 and ("graded spike" in str(error) or "32 bits" in str(error))
        return
    sent = {
        name: spikes.dense(len(frames), (program.neurons[name].size,))
        for name, spikes in trace.spikes.items()
    }
    sent[program.input] = frames.reshape(len(frames), -1)
    for name, one in program.neurons.items():
        du, dv, bias = (one.each(values).ravel().astype(np.int64) for values in (one.du, one.dv, one.bias))
        u, v = (one.each(values).ravel().astype(np.int64) for values in (one.u0, one.v0))
        wrapped = above = below = 0
        for t in range(len(frames)):
            a = np.zeros(one.size, np.int64)
            for synapses in program.into(name):
                if (then := t - 1 - synapses.delay) >= 0:
                    total = synapses.operator.matrix().astype(np.int64) @ sent[synapses.source][then]
                    total = total << max(synapses.exponent, 0)
                    if hasattr(synapses.operator, "stride"):
                        wrapped += np.sum((total >= 2**23) | (total < -(2**23)))
                        total = (total + 2**23) % 2**24 - 2**23
                    a += total >> max(-synapses.exponent, 0)
            current = np.sign(u) * (abs(u) * (4095 - du) >> 12) + (a << 6)
            wrapped += np.sum((current > 2**23) | (current <= -(2**23)))
            u = trace.u[name][t].ravel().astype(np.int64)
            voltage = np.sign(v) * (abs(v) * (4096 - dv) >> 12) + u + bias
            above, below = above + np.sum(voltage >= 2**23), below + np.sum(voltage <= -(2**23))
            v = trace.v[name][t].ravel().astype(np.int64)
        assert trace.wrapped[name] == wrapped
        assert (trace.saturated[name], trace.saturated_below[name]) == (above, below)


@compiled()
def _neurons(numbers: NDArray[np.int32], widths: Widths, to: NDArray[np.int32]) -> tuple[int, int, int]:
    """u, v, a, keep_u and keep_v of 16 neurons; what becomes of u, and the bits of what `lif` tells."""
    u, v, a = take(numbers[0], 0, 16), take(numbers[1], 0, 16), take(numbers[2], 0, 16)
    keep_u, keep_v = take(numbers[3], 0, 16), take(numbers[4], 0, 16)
    current, _, _, wrapped, above, below = lif(u, v, a, keep_u, keep_v, a - a, 2**23, widths)
    put(to, 0, current)
    return bits_of(wrapped), bits_of(above), bits_of(below)


STATE, ANY = st.integers(1 - 2**23, 2**23 - 1), st.integers(0, 4096)
ARRIVING = st.integers(-(2**30), 2**30) | st.integers(-7, 7).map(lambda k: k << 26)


@MANY
@given(st.lists(st.tuples(STATE, STATE, ARRIVING, ANY, ANY), min_size=16, max_size=16))
@example([(0, 0, 2**26, 0, 0)] * 16)  # of which 32 bits keep nothing
def test_flags_of_a_neuron_tell_the_truth(neurons: list[tuple[int, ...]]) -> None:
    widths, currents = Widths(np.int32(12), np.int32(6), np.int32(2**23)), np.empty(16, np.int32)
    flags = _neurons(np.array(neurons, np.int32).T.copy(), widths, currents)
    for lane, (u, v, a, keep_u, keep_v) in enumerate(neurons):
        wrapped, above, below = (bool(bits >> lane & 1) for bits in flags)
        wide = int(np.sign(u)) * (abs(u) * keep_u >> 12) + (a << 6)
        assert wrapped == (wide > 2**23 or wide <= -(2**23))
        voltage = int(np.sign(v)) * (abs(v) * keep_v >> 12) + int(currents[lane])
        assert (above, below) == (voltage >= 2**23, voltage <= -(2**23))


@settings(max_examples=3, deadline=None)
@given(programs())
def test_frames_of_fractions_or_of_another_shape_are_refused(program: LoihiProgram) -> None:
    with pytest.raises(InputError, match=r"frames hold 0\.5; Loihi 2 takes whole numbers"):
        Simulator(program).run(np.full((3, *INPUT), 0.5))
    with pytest.raises(InputError, match="frames hold 2147483648, a graded spike carries at most 2147483647"):
        Simulator(program).run(np.full((3, *INPUT), 2**31))
    with pytest.raises(InputError, match=r"the program takes \(2, 5, 6\)"):
        Simulator(program).run(np.zeros((3, 4)))


@pytest.mark.parametrize("counter", ["wrapped", "saturated"])
def test_random_programs_are_hostile_enough(counter: str) -> None:
    def overflows(case: tuple[LoihiProgram, NDArray[np.int64]]) -> bool:
        program, frames = case
        return any(getattr(Simulator(program).run(frames), counter).values())

    find(st.tuples(programs(), clips(steps=10)), overflows, settings=settings(MANY, phases=[Phase.generate]))


@MANY
@given(programs(), clips(steps=10))
def test_membranes_saturate_at_the_floor_of_their_population(
    program: LoihiProgram, frames: NDArray[np.int64]
) -> None:
    trace = Simulator(program).run(frames, record=program.neurons)
    for name, floor in floors(program).items():
        volts = program.neurons[name].volts(trace.v[name])
        assert (volts >= floor).all()
        assert np.sum(volts == floor) >= trace.saturated_below[name]
