"""The covariance properties themselves: transform the world and the receptive field, and the answer stays.

Each holds in the continuum, so every test repeats on finer grids and asks the error to fall.
"""

from math import cos, pi, sin

import numpy as np
import pytest
import torch

from nrf.fields.space import Field, from_covariance, integrate
from nrf.fields.spacetime import velocity_adapted
from nrf.fields.time import kernel
from nrf.model.neurons import LI, LIF


def scene(x: np.ndarray, y: np.ndarray, t: np.ndarray | float = 0.0) -> np.ndarray:
    """A smooth world without symmetry: two waves and a blob, all of them moving."""
    blob = np.exp(-((x - 1.5 - 0.2 * t) ** 2 + (y + 0.7) ** 2 / 2) / 8)
    return np.sin(0.5 * x + 0.3 * y - 0.4 * t) + 0.5 * np.cos(0.2 * x - 0.6 * y + 0.25 * t + 1) + 2 * blob


def smoothed(field: Field, world, place, spacing: float, reach: float) -> float:
    """The field's answer at `place` to `world`, both on a grid of this spacing."""
    size = 2 * round(reach / spacing) + 1
    weights = integrate(field, size, pixel=spacing)
    axis = (np.arange(size) - size // 2) * spacing
    return float((weights * world(place[0] - axis[None, :], place[1] - axis[:, None])).sum())


def errors_fall(errors: list[float], order: float) -> None:
    """Halving the grid divides the error by about 2^order."""
    ratios = np.array(errors[:-1]) / np.array(errors[1:])
    assert (ratios > 2**order * 0.75).all(), f"errors {errors} do not fall by {2**order}"


@pytest.mark.parametrize("matrix", [[[1.3, 0.4], [-0.2, 0.8]], [[0.5, 0.0], [0.7, 1.6]]])
def test_affine_smoothing_is_covariant(matrix):
    """Sigma' = A Sigma A^T."""
    transform = np.array(matrix)
    back = np.linalg.inv(transform)
    field = Field(1.6, 0.7, 2.0)
    turned = from_covariance(transform @ field.covariance @ transform.T)

    def turned_scene(x, y):
        return scene(back[0, 0] * x + back[0, 1] * y, back[1, 0] * x + back[1, 1] * y)

    errors = []
    for spacing in (1.0, 0.5, 0.25):
        worst = 0.0
        for place in [(0.0, 0.0), (2.0, -1.0), (-1.2, 2.5)]:
            before = smoothed(field, scene, place, spacing, reach=14)
            after = smoothed(turned, turned_scene, transform @ place, spacing, reach=22)
            worst = max(worst, abs(before - after))
        errors.append(worst)
    errors_fall(errors, order=2)
    assert errors[-1] < 2e-3


@pytest.mark.parametrize("order", [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)])
def test_scale_normalised_derivatives_are_covariant_under_rotation_and_scaling(order):
    """A = s R(a) turns the field by a and scales it by s; the normalisation keeps the answer."""
    size, angle = 1.7, 0.6
    field = Field(1.4, 0.3, 2.0, order)
    grown = Field(1.4 * size, 0.3 + angle, 2.0, order)

    def grown_scene(x, y):
        return scene((cos(angle) * x + sin(angle) * y) / size, (-sin(angle) * x + cos(angle) * y) / size)

    errors = []
    for spacing in (1.0, 0.5, 0.25):
        before = smoothed(field, scene, (1.0, 0.4), spacing, reach=14)
        place = size * (cos(angle) - 0.4 * sin(angle)), size * (sin(angle) + 0.4 * cos(angle))
        errors.append(abs(before - smoothed(grown, grown_scene, place, spacing, reach=24)))
    errors_fall(errors, order=2)
    assert errors[-1] < 2e-3


def test_velocity_adapted_fields_are_covariant_under_affine_galilean_and_temporal_scaling():
    """v' = (A v + u) / S_t, Sigma' = A Sigma A^T, mu' = S_t mu."""
    transform, drift, slower = np.array([[1.2, 0.3], [-0.2, 0.9]]), np.array([0.4, -0.25]), 1.5
    back = np.linalg.inv(transform)
    field, constants, velocity = Field(1.5, 0.4, 1.8), np.array([0.8, 1.5]), np.array([0.3, 0.2])
    other = from_covariance(transform @ field.covariance @ transform.T)
    other_velocity = (transform @ velocity + drift) / slower

    def other_scene(x, y, t):
        x, y = x - drift[0] * t / slower, y - drift[1] * t / slower
        return scene(back[0, 0] * x + back[0, 1] * y, back[1, 0] * x + back[1, 1] * y, t / slower)

    def answer(field, constants, velocity, world, place, time, spacing, span):
        size, steps = 2 * round(12 / spacing) + 1, round(span / spacing)
        weights = velocity_adapted(field, constants, tuple(velocity), size, steps, pixel=spacing, dt=spacing)
        axis = (np.arange(size) - size // 2) * spacing
        past = (time - (np.arange(steps) + 0.5) * spacing)[:, None, None]
        return float((weights * world(place[0] - axis[:, None].T, place[1] - axis[:, None], past)).sum())

    place, time = np.array([0.5, -0.8]), 2.0
    errors = []
    for spacing in (1.0, 0.5):
        before = answer(field, constants, velocity, scene, place, time, spacing, span=18)
        there = transform @ place + drift * time
        after = answer(
            other, slower * constants, other_velocity, other_scene, there, slower * time, spacing, span=27
        )
        errors.append(abs(before - after))
    errors_fall(errors, order=2)
    assert errors[-1] < 0.01


def test_a_field_that_follows_the_motion_sees_a_moving_blob_as_a_still_one():
    """Galilean alone: with v matched, the answer to a drifting world is the answer to the world at rest."""

    def blob(x, y, t, velocity):
        return np.exp(-((x - velocity[0] * t) ** 2 + (y - velocity[1] * t) ** 2) / 6)

    axis, velocity, rest = np.arange(33) - 16, (0.6, -0.4), (0.0, 0.0)
    errors, unmatched = [], []
    for dt in (1.0, 0.5, 0.25):
        steps = round(14 / dt)
        past = -(np.arange(steps) + 0.5)[:, None, None] * dt
        moving, resting = (blob(-axis, -axis[:, None], past, v) for v in (velocity, rest))
        follows, stays = (velocity_adapted(Field(1.5), 2.0, v, 33, steps, dt=dt) for v in (velocity, rest))
        errors.append(abs((follows * moving).sum() - (stays * resting).sum()))
        unmatched.append(abs((stays * moving).sum() - (stays * resting).sum()))
    errors_fall(errors, order=2)
    assert errors[-1] < 1e-3 and min(unmatched) > 0.05, "a field at rest does not"


PHASES = np.arange(12)  # of as many currents, so that no single near miss of the threshold counts


def drive(t: np.ndarray) -> np.ndarray:
    """Smooth currents (time, phases) that make a neuron with mu = 5 fire a few times."""
    t = t[:, None]
    return 1.8 + np.sin(t / 4 + PHASES) + 0.8 * np.sin(t / 1.7 + 2.3 * PHASES)


def run(neuron, current: np.ndarray) -> np.ndarray:
    return neuron.double()(torch.from_numpy(current).reshape(len(current), -1, 1, 1, 1))[0].flatten(1).numpy()


def at(times: np.ndarray, grid: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(times, grid, column) for column in values.T], axis=1)


@pytest.mark.parametrize("slower", [2.0, 0.6, 3.7])
def test_leaky_integrator_is_covariant_under_temporal_scaling(slower):
    """mu' = S mu: L'(S t) = L(t)."""
    errors = []
    when = np.linspace(1, 39, 30)
    for dt in (0.1, 0.05, 0.025):
        time, other_time = np.arange(0, 40, dt), np.arange(0, 40 * slower, dt)
        before = run(LI(5.0, dt=dt), drive(time))
        after = run(LI(5.0 * slower, dt=dt), drive(other_time / slower))
        errors.append(np.abs(at(when, time, before) - at(when * slower, other_time, after)).max())
    errors_fall(errors, order=1)
    assert errors[-1] < 0.02


@pytest.mark.parametrize("slower", [2.0, 0.6, 3.7])
def test_leaky_integrate_and_fire_is_covariant_under_temporal_scaling(slower):
    """mu' = S mu: the same spikes, at S times their times.

    The integral of the difference of the two spike counts, per spike, is the mean error of their times.
    """
    errors = []
    when = np.linspace(0, 39, 4000)
    for dt in (0.1, 0.025, 0.00625):
        time, other_time = np.arange(0, 40, dt), np.arange(0, 40 * slower, dt)
        before = run(LIF(5.0, threshold=1.0, dt=dt), drive(time)).cumsum(axis=0)
        after = run(LIF(5.0 * slower, threshold=1.0, dt=dt), drive(other_time / slower)).cumsum(axis=0)
        assert before[-1].min() >= 5, "there is something to compare"
        apart = np.abs(at(when, time, before) - at(when * slower, other_time, after)).mean() * 39
        errors.append(apart / before[-1].mean())
    errors_fall(errors, order=1)  # each grid is four times as fine, but single spikes are unruly
    assert errors[-1] < 0.02


def test_without_scaling_the_time_constant_the_answers_differ():
    """That the tests above can fail: the same neuron does not do for a slower world."""
    before = run(LI(5.0, dt=0.05), drive(np.arange(0, 40, 0.05)))
    after = run(LI(5.0, dt=0.05), drive(np.arange(0, 80, 0.05) / 2))
    assert np.abs(before - after[::2]).max() > 0.2


def test_leaky_integrator_tends_to_the_truncated_exponential_kernel():
    errors = []
    for dt in (0.2, 0.1, 0.05):
        impulse = np.zeros(round(20 / dt))
        impulse[0] = 1
        errors.append(np.abs(run(LI(3.0, dt=dt), impulse)[:, 0] - kernel(3.0, len(impulse), dt)).sum())
    errors_fall(errors, order=1)


def test_half_turn_leaves_smoothing_and_turns_odd_derivatives():
    for order in ((0, 0), (1, 0), (1, 1), (2, 1)):
        here, there = (integrate(Field(1.2, angle, 2.0, order), 9) for angle in (0.4, 0.4 + pi))
        assert np.allclose(there, (-1) ** sum(order) * here, atol=1e-15)
