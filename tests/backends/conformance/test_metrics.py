"""The metrics against libraries that we did not write, and against slow, plain definitions."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from nrf.backends.border.recording import Spikes
from nrf.backends.lowering import metrics

STEPS, NEURONS = 12, 3
counts = st.lists(st.integers(0, 2), min_size=STEPS * NEURONS, max_size=STEPS * NEURONS).map(
    lambda values: np.array(values).reshape(STEPS, NEURONS)
)
jitters = st.integers(0, 4)


def one_per_spike(spikes: Spikes) -> np.ndarray:
    """(spikes, 2): neuron and step of every single spike."""
    return np.stack([np.repeat(spikes.i, spikes.n), np.repeat(spikes.t, spikes.n)], axis=1)


@given(counts, counts, jitters)
def test_matching_is_the_maximum_matching_of_scipy(a, b, jitter):
    r, c = Spikes.from_dense(a), Spikes.from_dense(b)
    left, right = one_per_spike(r), one_per_spike(c)
    near = (left[:, None, 0] == right[None, :, 0]) & (abs(left[:, None, 1] - right[None, :, 1]) <= jitter)
    pairs = maximum_bipartite_matching(csr_array(near)) if near.size else np.array([])
    assert metrics.matched(r, c, jitter) == (pairs >= 0).sum()


@pytest.mark.filterwarnings("ignore")
@given(counts, counts, st.sampled_from([0.5, 2.0, 7.0]))
def test_van_rossum_is_that_of_elephant(a, b, tau):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # elephant's own imports
        import quantities as pq
        from elephant.spike_train_dissimilarity import van_rossum_distance

        expected = 0.0
        for neuron in range(NEURONS):
            trains = [np.sort(np.repeat(np.arange(STEPS), x[:, neuron])).astype(float) * pq.s for x in (a, b)]
            if all(len(train) for train in trains):
                expected += van_rossum_distance(trains, tau * pq.s)[0, 1] ** 2
            else:  # elephant fails on an empty train: the distance to nothing is the norm of the other
                t = np.concatenate([train.magnitude for train in trains])
                expected += np.exp(-abs(t[:, None] - t) / tau).sum()
    ours = metrics.van_rossum(Spikes.from_dense(a), Spikes.from_dense(b), tau)
    assert ours == pytest.approx(expected, abs=1e-6)


@given(counts, st.integers(0, 3))
def test_a_delayed_copy_matches_at_its_lag_only_after_alignment(a, delay):
    late = np.zeros_like(a)
    late[delay:] = a[: STEPS - delay]
    r, c = metrics.aligned(Spikes.from_dense(a), Spikes.from_dense(late), STEPS, delay)
    assert metrics.matched(r, c) == r.count == c.count
    assert metrics.first_difference(r, c) is None
    table = metrics.at_lags(Spikes.from_dense(a), Spikes.from_dense(late), STEPS, range(-3, 4))
    assert metrics.f1(*table[delay + 3]) == 1.0


def test_spikes_before_the_latency_match_nothing():
    a, b = np.zeros((4, 1), int), np.zeros((4, 1), int)
    b[0] = 1  # a chip with one step of latency cannot know anything at step 0
    r, c = metrics.aligned(Spikes.from_dense(a), Spikes.from_dense(b), 4, 1)
    assert c.count == 1 and metrics.first_difference(r, c) == (-1, 0)


@given(counts, counts)
def test_first_difference_is_the_first_in_the_dense_arrays(a, b):
    found = metrics.first_difference(Spikes.from_dense(a), Spikes.from_dense(b))
    steps, neurons = np.nonzero(a != b)
    assert found == ((int(steps[0]), int(neurons[0])) if len(steps) else None)


@given(counts, counts)
def test_membranes_are_comparable_until_the_neuron_first_differs(a, b):
    mask = metrics.comparable(Spikes.from_dense(a), Spikes.from_dense(b), STEPS, NEURONS)
    assert np.array_equal(mask, np.cumsum(a != b, axis=0) == 0)


def test_silence_agrees_with_silence():
    nothing = Spikes.from_dense(np.zeros((5, 2)))
    assert metrics.f1(metrics.matched(nothing, nothing), 0, 0) == 1.0
    assert metrics.van_rossum(nothing, nothing, 4.0) == 0.0
