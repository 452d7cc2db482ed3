"""One node against itself, against a shifted, a sparse and a random copy."""

from dataclasses import fields

import numpy as np
import pytest

from nrf.backends.border.recording import Provenance, Recording, Spikes
from nrf.backends.conformance import compare
from nrf.errors import InputError

STEPS, SHAPE = 40, (2, 3)
UNIT = np.ones(SHAPE)


def recording(counts: np.ndarray, membrane: np.ndarray | None = None, latency: int = 0) -> Recording:
    return Recording(
        steps=len(counts),
        shapes={"lif": SHAPE},
        spikes={"lif": Spikes.from_dense(counts)},
        provenance=Provenance("builtin", "simulation"),
        membranes={} if membrane is None else {"lif": membrane},
        latencies={"lif": latency},
    )


@pytest.fixture
def spikes() -> np.ndarray:
    return (np.random.default_rng(1).random((STEPS, *SHAPE)) < 0.2).astype(int)


def delayed(array: np.ndarray, steps: int) -> np.ndarray:
    late = np.zeros_like(array)
    late[steps:] = array[: len(array) - steps]
    return late


def test_a_recording_compared_with_itself_has_zero_error_everywhere(spikes):
    membrane = np.random.default_rng(2).normal(size=spikes.shape)
    same = recording(spikes, membrane)
    found = compare.tally(same, same, "lif", UNIT)
    figures = found.figures()
    assert found.divergence is None
    spikes = dict.fromkeys(("reference_spikes", "candidate_spikes"), spikes.sum())
    perfect = dict.fromkeys(("f1", "f1_jitter", "precision", "recall"), 1.0)
    assert {key: value for key, value in figures.items() if value} == {**perfect, **spikes}


@pytest.mark.parametrize("latency", [0, 1, 3])
def test_a_declared_latency_costs_nothing(spikes, latency):
    membrane = np.random.default_rng(2).normal(size=spikes.shape)
    late = recording(delayed(spikes, latency), delayed(membrane, latency), latency)
    figures = compare.tally(recording(spikes, membrane), late, "lif", UNIT).figures()
    assert figures["f1"] == 1.0 and figures["lag"] == latency and figures["membrane_differ"] == 0


def test_the_last_steps_of_a_late_node_are_not_held_against_its_lag():
    """Where neurons fire in most steps, earlier lags count more spikes; the declared one must not lose."""
    dense = (np.random.default_rng(1).random((STEPS, *SHAPE)) < 0.99).astype(int)
    assert compare.tally(recording(dense), recording(delayed(dense, 3), latency=3), "lif", UNIT).lag == 3


def test_an_undeclared_delay_is_measured_and_points_at_the_first_spike(spikes):
    found = compare.tally(recording(spikes), recording(delayed(spikes, 2)), "lif", UNIT)
    assert found.lag == 2
    step, *neuron = (int(index[0]) for index in np.nonzero(spikes))
    assert found.divergence.step == step and found.divergence.neuron == tuple(neuron)
    assert found.divergence.spikes == (1, 0)


def test_a_candidate_that_is_faster_than_declared_is_measured_too(spikes):
    membrane = np.random.default_rng(2).normal(size=spikes.shape)
    early = recording(spikes, membrane, latency=0)
    late = recording(delayed(spikes, 2), delayed(membrane, 2))
    assert compare.tally(late, early, "lif", UNIT).lag == -2
    honest = compare.tally(late, recording(spikes, membrane, latency=-2), "lif", UNIT).figures()
    assert honest["f1"] == 1.0 and honest["membrane"] == 0


def test_the_lag_of_a_node_that_never_spikes_is_measured_on_its_membrane():
    silent = np.zeros((STEPS, *SHAPE))
    membrane = np.cumsum(np.random.default_rng(3).normal(size=silent.shape), axis=0)
    late = recording(silent, delayed(membrane, 1))
    assert compare.tally(recording(silent, membrane), late, "lif", UNIT).lag == 1


def test_a_clip_shorter_than_the_search_has_the_declared_lag():
    silent, membrane = np.zeros((2, *SHAPE)), np.arange(2.0)[:, None, None] * np.ones(SHAPE)
    short = recording(silent, membrane)
    assert compare.tally(short, short, "lif", UNIT).lag == 0
    spikes = recording(np.ones((2, *SHAPE)))
    assert compare.tally(spikes, spikes, "lif", UNIT).lag == 0


def test_membrane_error_is_in_thresholds_and_stops_where_spikes_part(spikes):
    membrane = np.zeros(spikes.shape)
    other, shifted = spikes.copy(), membrane + 0.5
    other[20, 0, 0] = 1 - other[20, 0, 0]
    shifted[20:, 0, 0] = 9.0  # after a different reset
    figures = compare.tally(
        recording(spikes, membrane), recording(other, shifted), "lif", np.full(SHAPE, 2.0)
    ).figures()
    assert figures["membrane"] == 0.25 and figures["membrane_differ"] == 9.0


def test_where_resets_come_late_the_membrane_of_a_spike_is_not_compared(spikes):
    """One side records it before the reset and the other after it; all other steps still count."""
    membrane = np.random.default_rng(2).normal(size=spikes.shape)
    after = np.where(spikes > 0, membrane - 1.0, membrane)
    pair = recording(spikes, membrane), recording(spikes, after)
    assert compare.tally(*pair, "lif", UNIT).figures()["membrane"] > 0.2
    assert compare.tally(*pair, "lif", UNIT, late_reset=True).figures()["membrane"] == 0
    off = recording(spikes, after + 0.25)
    assert compare.tally(pair[0], off, "lif", UNIT, late_reset=True).figures()["membrane"] > 0.05


def test_random_output_is_far_from_everything(spikes):
    noise = (np.random.default_rng(9).random(spikes.shape) < 0.2).astype(int)
    figures = compare.tally(recording(spikes), recording(noise), "lif", UNIT).figures()
    assert figures["f1"] < 0.5 and figures["van_rossum"] > 0.5


def test_tallies_of_two_clips_add_up_to_that_of_both(spikes):
    other = np.roll(spikes, 1, axis=2)
    parts = [(spikes, other), (other, other)]
    total = sum(
        (compare.tally(recording(a), recording(b), "lif", UNIT) for a, b in parts[1:]),
        compare.tally(*(recording(x) for x in parts[0]), "lif", UNIT),
    )
    matches = sum((a * b).sum() for a, b in parts)
    assert total.matched == matches and total.reference == spikes.sum() + other.sum()
    assert total.divergence is not None


def test_every_field_of_a_tally_is_added_but_those_that_are_no_sums():
    numbers = {each.name: 2 for each in fields(compare.Tally)} | {"divergence": None}
    one = compare.Tally(**numbers | {"spikes_at_lag": np.full((compare.LAGS, 3), 2)})
    total = one + one
    kept = {name for name in numbers if not np.all(getattr(total, name) == 4)}
    assert kept == set(compare.NOT_SUMMED)
    assert (total.latency, total.worst, total.differ) == (2, 2, 2)
    assert (one + compare.Tally()).differ == 2


def test_recordings_of_different_length_are_refused(spikes):
    with pytest.raises(InputError, match="40 and 39 steps"):
        compare.tally(recording(spikes), recording(spikes[:-1]), "lif", UNIT)


def test_a_membrane_at_the_chips_lower_end_is_compared_again_after_its_next_spike():
    counts, wanted = np.zeros((4, *SHAPE), int), np.zeros((4, *SHAPE))
    counts[2, 0, 0], wanted[:, 0, 0] = 1, [-5, -4, 0, 0.25]
    found = wanted.copy()
    found[:, 0, 0] = [-3, -2, 0, 0.75]  # met the floor at the first step, and leaks from there
    pair = recording(counts, wanted), recording(counts, found)
    held = compare.tally(*pair, "lif", UNIT, floor=np.full(SHAPE, -3.0)).figures()
    assert held["membrane"] == 0.5 and held["membrane_differ"] == 2
    assert held["membrane_rms"] == pytest.approx(0.5 / np.sqrt(4 * 6 - 2))
    assert compare.tally(*pair, "lif", UNIT, floor=np.full(SHAPE, -9.0)).figures()["membrane_rms"] > 0.1
