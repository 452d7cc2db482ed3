"""Events and their binning."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.errors import InputError
from nrf.events import frame_index, load_frames, make, write
from tests.nrf.events.recordings import random_events

GOOD = {"t": [0, 10, 10, 2500], "x": [0, 3, 3, 7], "y": [0, 1, 1, 5], "p": [1, 0, 0, 1]}


def test_frames_hold_each_event_at_its_step_polarity_row_and_column():
    frames = make(**GOOD, sensor=(6, 8)).frames(dt=1e-3)
    assert frames.shape == (3, 2, 6, 8)
    assert frames[0, 1, 0, 0] == 1 and frames[0, 0, 1, 3] == 2 and frames[2, 1, 5, 7] == 1
    assert frames.sum() == 4


def test_binary_frames_hold_no_more_than_one():
    frames = make(**GOOD, sensor=(6, 8)).frames(dt=1e-3, binary=True)
    assert frames.max() == 1 and frames.sum() == 3


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), dt=st.sampled_from([1e-3, 2.5e-4, 1e-6 * 7, 1 / 3000, 0.02]))
def test_no_event_is_lost_and_each_is_where_a_plain_loop_puts_it(seed, dt):
    events = random_events(seed, count=60, last=3000)
    frames = events.frames(dt)
    expected = np.zeros_like(frames)
    for t, x, y, p in events.data.tolist():
        expected[int(np.floor(t / (dt * 1e6) + 1e-12)), p, y, x] += 1
    assert np.array_equal(frames, expected)


def test_span_decides_the_number_of_frames_not_the_last_event():
    assert len(make(**GOOD, sensor=(6, 8), stop=10_000).frames(dt=1e-3)) == 10
    assert len(make(**GOOD, sensor=(6, 8), stop=10_000).frames(dt=1e-3, steps=4)) == 4


def test_steps_cuts_off_what_comes_later():
    assert make(**GOOD, sensor=(6, 8)).frames(dt=1e-3, steps=2).sum() == 3


def test_frame_index_is_exact_where_floating_point_is_not():
    # 0.3 ms is not a binary fraction: 900 us must be the first of frame 3
    assert frame_index(np.array([899, 900]), 0, 3e-4).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": [0, 3, 8, 7]}, "event 2 is at x=8, y=1, outside the sensor of 8 columns x 6 rows"),
        ({"y": [0, 1, 1, -1]}, "event 3 is at x=7, y=-1, outside"),
        ({"t": [0, 10, 9, 2500]}, "time goes back at event 2, from 10 to 9 us; sort by t first"),
        ({"t": [], "x": [], "y": [], "p": []}, "holds no events"),
        ({"p": [1, 0, 2, 1]}, "polarity 2, expected 0 or 1"),
        ({"t": [0, 10, 2500]}, "different lengths"),
        ({"t": [0, 0.5, 1, 2]}, "column t is not made of whole numbers"),
        ({"t": [0, float("nan"), 1, 2]}, "column t is not made of whole numbers"),
        ({"t": [-5, 10, 10, 20]}, "first event at -5 us, before the start at 0 us"),
        ({"stop": 2500}, "last event at 2500 us, not before the end at 2500 us"),
    ],
)
def test_bad_events_are_refused_with_one_clear_line(change, words):
    with pytest.raises(InputError, match=r"recording\.csv: ") as error:
        make(**(GOOD | {"sensor": (6, 8)} | change), where="recording.csv")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_polarity_minus_one_means_darker():
    assert make(**(GOOD | {"p": [1, -1, -1, 1]})).data["p"].tolist() == [1, 0, 0, 1]


def test_frames_that_cannot_fit_in_memory_are_refused():
    far = make([0, 2 * 10**15], [0, 1], [0, 1], [0, 1], sensor=(480, 640))
    with pytest.raises(InputError, match=r"frames of 2x480x640 .* GB of memory, at most .*; use a larger dt"):
        far.frames(dt=1e-3)


@pytest.mark.parametrize("dt", [0, -1e-3, float("nan"), float("inf"), 1e-30])
def test_dt_must_be_a_length_of_time(dt):
    with pytest.raises(InputError, match=f"dt is {dt} s, "):
        make(**GOOD).frames(dt=dt)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (np.full((3, 2, 4, 4), np.nan), "frames hold nan, expected finite 32-bit numbers"),
        (np.full((3, 2, 4, 4), 1e300), "frames hold 1e\\+300, expected finite 32-bit numbers"),
        (np.full((3, 2, 4, 4), "a"), "frames hold <U1, expected numbers"),
        (np.full((3, 2, 4, 4), 1j), "frames hold complex128, expected numbers"),
        (np.array(1.0), "frames have shape \\(\\), expected \\(T, 2, 4, 4\\)"),
    ],
)
def test_frames_that_are_not_numbers_are_refused_by_file(tmp_path, frames, words):
    np.savez(tmp_path / "a.npz", frames=frames)
    with pytest.raises(InputError, match=rf"a\.npz: {words}"):
        load_frames(tmp_path / "a.npz", 1e-3, (2, 4, 4))


def test_events_that_do_not_fit_in_memory_are_refused_by_file(tmp_path):
    write(tmp_path / "a.npz", make([0, 2 * 10**15], [0, 1], [0, 1], [0, 1], sensor=(480, 640)))
    with pytest.raises(InputError, match=r"a\.npz: .* GB of memory"):
        load_frames(tmp_path / "a.npz", 1e-3, (2, 480, 640))


def test_load_frames_takes_frames_or_events(tmp_path):
    events = random_events(3)
    frames = events.frames(1e-3)
    np.savez(tmp_path / "frames.npz", frames=frames)
    write(tmp_path / "events.npz", events)
    write(tmp_path / "events.csv", events)
    files = [tmp_path / name for name in ("frames.npz", "events.npz", "events.csv")]
    for source in (*files, frames, events):
        loaded = load_frames(source, 1e-3, (2, 12, 20))
        assert loaded.dtype == np.float32 and np.array_equal(loaded, frames)


def test_load_frames_names_the_shapes_that_disagree(tmp_path):
    np.savez(tmp_path / "frames.npz", frames=np.zeros((5, 2, 8, 8)))
    with pytest.raises(InputError, match=r"frames have shape \(5, 2, 8, 8\), expected \(T, 2, 9, 9\)"):
        load_frames(tmp_path / "frames.npz", 1e-3, (2, 9, 9))
    write(tmp_path / "events.npz", random_events(1))
    with pytest.raises(InputError, match="recorded with 20 columns x 12 rows, expected 64 columns x 64 rows"):
        load_frames(tmp_path / "events.npz", 1e-3, (2, 64, 64))
    with pytest.raises(InputError, match=r"give a \.npz file with an array 'frames'"):
        load_frames(tmp_path / "events.npz", 1e-3, (1, 12, 20))


def test_streams_are_equal_if_their_events_sensor_and_span_are() -> None:
    columns = {"t": [0, 1500], "x": [3, 4], "y": [0, 0], "p": [1, 0]}
    events = make(**columns, sensor=(8, 8))
    assert events == make(**columns, sensor=(8, 8)) and events != "events"
    others = [make(**columns | {"x": [3, 5]}, sensor=(8, 8)), make(**columns), make(**columns, stop=9000)]
    assert all(events != other for other in others)
