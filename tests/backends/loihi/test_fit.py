"""What makes membranes nearest to the reference's is found again where it was put in."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends.loihi.fit import Membranes, fitted, samples

UNITY = 4096


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from((-1, 0, 1)), st.sampled_from((-1, 0, 1)), st.booleans())
def test_decays_gain_and_bias_that_were_off_are_found(seed: int, m: int, n: int, resets: bool) -> None:
    """A float neuron whose decays are off by whole counts, its gain and its bias by some per mille."""
    rng = np.random.default_rng(seed)
    du, dv = rng.integers(800, 1600, 3), rng.integers(150, 600, 3)
    gain, bias = 1 + rng.normal(0, 1e-3, 3), rng.normal(0, 1e-5, 3)
    x = rng.normal(0.012, 0.02, (4000, 3))

    def neuron(du: np.ndarray, dv: np.ndarray, fired: np.ndarray | None, gain: np.ndarray, bias: np.ndarray):  # type: ignore[no-untyped-def,type-arg]
        u, v, us, vs, spikes = np.zeros(3), np.zeros(3), [], [], []
        for t, drive in enumerate(x):
            u = u * (1 - du / UNITY) + gain * drive
            v = v * (1 - dv / UNITY) + u + bias
            z = v > 1 if fired is None else fired[t]
            v = np.where(z & resets, 0, v)
            us, vs, spikes = [*us, u], [*vs, v], [*spikes, z]
        return np.array(us), np.array(vs), np.array(spikes)

    _, wanted, fired = neuron(du + m, dv + n, None, gain, bias)
    u, v, _ = neuron(du, dv, fired, np.ones(3), np.zeros(3))
    kept = 1 - du / UNITY, 1 - dv / UNITY
    part = samples(Membranes(u, v, fired, wanted, fired), *kept, 3, resets)
    fit = fitted([part], 3, (True, True), UNITY)
    seen = np.bincount(part.groups, minlength=3) > 100
    assert np.all(fit.left[seen] <= 0.05 * fit.error[seen] + 1e-9)
    assert np.all(np.abs(fit.gain - gain)[seen] < 3e-3)


def test_where_nothing_came_near_the_threshold_nothing_is_changed() -> None:
    quiet = np.zeros((10, 2))
    membranes = Membranes(quiet, quiet, quiet > 0, quiet, quiet > 0)
    fit = fitted([samples(membranes, np.ones(2), np.ones(2), 2, True)], 2, (True, True), UNITY)
    assert np.array_equal(fit.gain, [1, 1]) and not fit.bias.any() and not fit.shift.any()
    assert not fit.error.any() and not fit.left.any()


def test_membranes_that_were_not_reset_together_tell_nothing() -> None:
    v, fired = np.full((5, 1), 0.8), np.zeros((5, 1), bool)
    late = fired.copy()
    late[1], fired[3], late[3] = True, True, True
    part = samples(Membranes(0 * v, v, fired, v, late), np.ones(1), np.ones(1), 1, True)
    assert part.rows.shape[1] == 2  # before the spike that one of them missed, and after the next of both
