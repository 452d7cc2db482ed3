"""Drifting shapes: what is drawn, what becomes events, and that a seed means one clip."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nrf.errors import InputError
from nrf.events.synthetic import SyntheticConfig, circumradius, clip, emit, intensity, motion

SMALL = SyntheticConfig(resolution=64, scales=(16.0,), velocities=(0.64,))
QUIET = replace(SMALL, noise=0.0)


def drawn(
    config: SyntheticConfig, centre: tuple[float, float], scale: float, angle: float = 0.0
) -> np.ndarray:
    """One frame with the first shape of `config` at `centre`."""
    return intensity(config, scale, np.array([[centre]]), np.array([angle]))[0]


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**63))
def test_a_seed_means_one_clip_whatever_came_before(seed):
    first = clip(seed, SMALL)
    clip(seed + 1, QUIET)
    again = clip(seed, SMALL)
    assert np.array_equal(first.events.data, again.events.data)
    assert np.array_equal(first.coordinates, again.coordinates)


def test_seeds_differ():
    assert not np.array_equal(clip(1, SMALL).coordinates, clip(2, SMALL).coordinates)


def test_frames_hold_the_events_and_labels_their_steps():
    made = clip(4, SMALL)
    frames = made.frames()
    assert frames.shape == (50, 2, 64, 64) and frames.dtype == np.float32
    assert set(np.unique(frames)) == {0.0, 1.0} and frames.sum() == len(made.events)
    assert made.coordinates.shape == (50, 3, 2) and made.events.stop == 50_000


@pytest.mark.parametrize("shape", ["triangle", "square", "circle"])
@pytest.mark.parametrize("line", [1.0, 2.0])
def test_a_contour_is_as_long_and_wide_as_geometry_says(shape, line):
    """The sum of the intensity is the area of the line: perimeter times width, corners apart."""
    config = SyntheticConfig(resolution=64, shapes=(shape,), scales=(24.0,), line=line)
    perimeter = {"triangle": 3 * 24.0, "square": 4 * 24.0, "circle": np.pi * 24.0}[shape]
    frame = drawn(config, (31.3, 30.7), 24.0, angle=0.4)
    # the inner and outer polygon differ in area by exactly perimeter times width for mitred corners
    assert frame.sum() == pytest.approx(perimeter * line, rel=2e-3)
    assert frame[31, 31] == 0, "contours only: the inside is empty"


@pytest.mark.parametrize("supersampling", [1, 2, 3, 5, 8])
def test_a_shape_is_where_it_should_be_at_any_supersampling(supersampling):
    config = SyntheticConfig(resolution=64, shapes=("circle",), scales=(24.0,), supersampling=supersampling)
    frame = drawn(config, (31.3, 30.7), 24.0)
    y, x = np.indices(frame.shape)
    assert (frame * x).sum() / frame.sum() == pytest.approx(31.3, abs=0.02)
    assert (frame * y).sum() / frame.sum() == pytest.approx(30.7, abs=0.02)


def test_filled_shapes_have_the_area_of_the_shape():
    config = SyntheticConfig(resolution=64, shapes=("triangle",), scales=(24.0,), line=0.0)
    assert drawn(config, (31.0, 30.0), 24.0).sum() == pytest.approx(np.sqrt(3) / 4 * 24**2, rel=2e-3)


@pytest.mark.parametrize("shape", ["triangle", "square", "circle"])
@settings(deadline=None, max_examples=20)
@given(x=st.floats(25, 38), y=st.floats(25, 38), angle=st.floats(0, 6.3))
def test_the_label_is_the_centre_of_what_is_drawn(shape, x, y, angle):
    config = SyntheticConfig(resolution=64, shapes=(shape,), scales=(20.0,))
    frame = drawn(config, (x, y), 20.0, angle).astype(np.float64)
    rows, columns = np.indices(frame.shape)
    assert (frame * columns).sum() / frame.sum() == pytest.approx(x, abs=0.02)
    assert (frame * rows).sum() / frame.sum() == pytest.approx(y, abs=0.02)


def test_drawing_once_and_reading_between_pixels_is_drawing_at_eight_times_and_downsampling():
    """Against the plain way: every pixel of the large frame, then torch's antialiased bilinear filter."""
    import torch

    config = SyntheticConfig(resolution=32, shapes=("circle",), scales=(14.0,))
    x, y = 15 + 3 / 8, 16 - 2 / 8  # places of the large frame, so that nothing is interpolated there
    fine = (np.arange(32 * 8) + 0.5) / 8 - 0.5
    distance = np.hypot(fine[None, :] - x, fine[:, None] - y) - 7
    large = np.clip((0.5 - np.abs(distance)) * 8 + 0.5, 0, 1)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(large)[None, None], scale_factor=1 / 8, mode="bilinear", antialias=True
    )[0, 0].numpy()
    assert np.abs(drawn(config, (x, y), 14.0) - expected).max() < 1e-5


def test_where_shapes_cross_the_brighter_wins():
    config = SyntheticConfig(resolution=64, shapes=("square", "circle"), scales=(20.0,))
    tracks = np.array([[[30.0, 30.0], [34.0, 33.0]]])
    both = intensity(config, 20.0, tracks, np.zeros(2))
    alone = [
        intensity(replace(config, shapes=(shape,)), 20.0, tracks[:, i : i + 1], np.zeros(1))
        for i, shape in enumerate(config.shapes)
    ]
    assert np.array_equal(both, np.maximum(*alone))


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), velocity=st.floats(0.1, 9.0))
def test_shapes_move_at_their_velocity_and_stay_inside(seed, velocity):
    config = replace(QUIET, velocities=(velocity,))
    tracks, _ = motion(np.random.default_rng(seed), config, 16.0, velocity)
    margin = np.array([circumradius(shape, 16.0) for shape in config.shapes])[:, None]
    assert (tracks >= margin - 1e-9).all() and (tracks <= 63 - margin + 1e-9).all()
    speed = np.linalg.norm(np.diff(tracks, axis=0), axis=-1)
    assert (speed <= velocity + 1e-9).all() and np.median(speed) == pytest.approx(velocity)


def test_events_add_up_to_the_change_of_intensity():
    """What has been emitted never strays further than the threshold from what has changed."""
    rng = np.random.default_rng(3)
    scene = rng.random((40, 16, 16), np.float32).cumsum(axis=0) * 0.1
    scene[20:] = scene[20:][::-1] + scene[19] - scene[-1]
    step, pixel, polarity = emit(rng, scene, threshold=0.25)
    emitted = np.zeros((40, 256))
    np.add.at(emitted, (step + 1, pixel), (polarity * 2 - 1) * 0.25)
    gap = scene.reshape(40, -1) - scene[0].reshape(-1) - emitted.cumsum(axis=0)
    assert np.abs(gap).max() <= 2 * 0.25 + 1e-6
    assert set(polarity) == {0, 1}


def test_nothing_moves_nothing_happens():
    still = clip(0, replace(QUIET, velocities=(0.0,)))
    assert still.signal == 0 and len(still.events) == 0 and still.frames().sum() == 0


def test_without_rotation_all_shapes_are_upright():
    upright = replace(QUIET, rotate=False)
    assert not motion(np.random.default_rng(0), upright, 16.0, 0.64)[1].any()
    assert motion(np.random.default_rng(0), QUIET, 16.0, 0.64)[1].any()


def test_noise_has_its_rate_and_both_polarities():
    config = replace(SMALL, velocities=(0.0,), noise=0.02)
    frames = np.stack([clip(seed, config).frames() for seed in range(5)])
    count = frames.any(axis=2).sum()
    expected = 0.02 * frames[:, :, 0].size
    assert abs(count - expected) < 4 * np.sqrt(expected)
    assert abs(frames[:, :, 0].sum() - count / 2) < 4 * np.sqrt(count / 4)


def test_noise_changes_nothing_else():
    assert clip(5, QUIET).signal == clip(5, SMALL).signal
    quiet, noisy = clip(5, QUIET).frames(), clip(5, SMALL).frames()
    assert (noisy >= quiet).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shapes": ("star",)}, "shapes[0] is 'star', expected one of circle, square, triangle"),
        ({"scales": (60.0,)}, "does not fit 64x64 px; use smaller scales"),
        ({"steps": 0}, "steps is 0, expected int >= 1"),
        ({"scales": ()}, "scales is (), expected list of length >= 1"),
        ({"noise": 1.5}, "noise is 1.5, expected float <= 1"),
        ({"scales": (-3.0,)}, "scales[0] is -3.0, expected float > 0"),
        ({"velocities": (0.1, float("nan"))}, "velocities[1] is nan, expected float >= 0"),
        ({"line": float("nan")}, "line is nan, expected float >= 0"),
        ({"dt": 1 / 3000}, "expected a whole number of microseconds"),
        ({"threshold": 0.0}, "threshold is 0.0, expected float > 0"),
        ({"resolution": 10**6}, "resolution is 1000000, expected int <= 65536"),
        (
            {"resolution": 30000},
            "GiB to make, the limit is 4; lower resolution, steps, line or supersampling",
        ),
        ({"steps": 10**7}, "a clip of 10000000 steps on 64x64 px, drawn 8 times larger, takes about"),
        ({"supersampling": 1000}, "drawn 1000 times larger, takes about"),
    ],
)
def test_bad_configurations_say_what_is_wrong(change, words):
    with pytest.raises(InputError) as error:
        replace(SMALL, **change)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"resolution": 400, "scales": (100.0,), "noise": 0.1},
        {"resolution": 300, "scales": (20.0,), "noise": 0.0},
        {"resolution": 200, "noise": 1.0},
        {"resolution": 200, "scales": (100.0,), "steps": 5, "supersampling": 16},
    ],
)
def test_a_clip_takes_roughly_the_memory_that_would_refuse_it(change):
    config = replace(SMALL, **change)
    tracemalloc.start()
    try:
        clip(0, config)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    largest = 2 * max(circumradius(shape, max(config.scales)) for shape in config.shapes)
    assert 0.5 < peak / config._bytes(largest) < 1.3
