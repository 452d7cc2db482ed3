"""The paths of the built-in simulator agree to the bit, with each other and with the equations."""

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nrf.backends.loihi.program import LoihiProgram
from nrf.backends.loihi.simulate import Trace, simulate
from nrf.errors import InputError
from tests.backends.loihi.programs import INPUT, clips, programs

MANY = settings(max_examples=150, deadline=None)


def assert_same(one: Trace, other: Trace) -> None:
    for name in one.spikes:
        np.testing.assert_array_equal(one.v[name], other.v[name], err_msg=f"v of {name}")
        np.testing.assert_array_equal(one.u[name], other.u[name], err_msg=f"u of {name}")
        for key in "tin":
            np.testing.assert_array_equal(getattr(one.spikes[name], key), getattr(other.spikes[name], key))


@MANY
@given(programs(), clips(steps=14))
def test_events_dense_and_steps_give_the_same_bits(program: LoihiProgram, frames: NDArray[np.int64]) -> None:
    one, _ = simulate(program, frames, record=program.neurons)
    for path in ("dense", "steps"):
        other, _ = simulate(program, frames, record=program.neurons, path=path)  # type: ignore[arg-type]
        assert_same(one, other)
        assert one.wrapped == other.wrapped and one.saturated == other.saturated


@MANY
@given(programs(), clips(steps=14), st.integers(1, 13))
def test_a_clip_in_pieces_equals_the_clip_in_one(
    program: LoihiProgram, frames: NDArray[np.int64], cut: int
) -> None:
    whole, end = simulate(program, frames, record=program.neurons)
    first, state = simulate(program, frames[:cut], record=program.neurons)
    second, last = simulate(program, frames[cut:], state=state, record=program.neurons)
    for name in program.neurons:
        np.testing.assert_array_equal(whole.v[name], np.concatenate([first.v[name], second.v[name]]))
        times = np.concatenate([first.spikes[name].t, second.spikes[name].t + cut])
        np.testing.assert_array_equal(whole.spikes[name].t, times)
        np.testing.assert_array_equal(end.u[name], last.u[name])


@MANY
@given(programs(), clips(steps=10))
def test_simulator_computes_the_equations(program: LoihiProgram, frames: NDArray[np.int64]) -> None:
    """Lava's equations once more, plainly, with matrices and 32-bit NumPy: a test without Lava."""
    trace, _ = simulate(program, frames, record=program.neurons)
    spikes = {program.input: frames.reshape(len(frames), -1)}
    spikes |= {name: np.zeros((len(frames), one.size), np.int64) for name, one in program.neurons.items()}
    u = {name: one.each(one.u0).ravel() for name, one in program.neurons.items()}
    v = {name: one.each(one.v0).ravel() for name, one in program.neurons.items()}
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
            spikes[name][t] = voltage > vth << 6
            v[name] = np.where(voltage > vth << 6, 0, voltage)
            np.testing.assert_array_equal(trace.u[name][t].ravel(), u[name])
            np.testing.assert_array_equal(trace.v[name][t].ravel(), v[name])


@settings(max_examples=3, deadline=None)
@given(programs())
def test_frames_of_fractions_or_of_another_shape_are_refused(program: LoihiProgram) -> None:
    with pytest.raises(InputError, match=r"frames hold 0\.5; Loihi 2 takes whole numbers"):
        simulate(program, np.full((3, *INPUT), 0.5))
    with pytest.raises(InputError, match=r"the program takes \(2, 5, 6\)"):
        simulate(program, np.zeros((3, 4)))


@pytest.mark.parametrize("counter", ["wrapped", "saturated"])
def test_random_programs_are_hostile_enough(counter: str) -> None:
    def overflows(case: tuple[LoihiProgram, NDArray[np.int64]]) -> bool:
        return any(getattr(simulate(*case)[0], counter).values())

    find(st.tuples(programs(), clips(steps=10)), overflows, settings=settings(MANY, phases=[Phase.generate]))
