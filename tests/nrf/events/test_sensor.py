"""What lies between a camera and a network: sayable once, in the contract, and done wherever events are read.

Its parts are held against Sinabs' own in tests/backends/speck/test_board.py.
"""

from pathlib import Path

import numpy as np
import pytest

from nrf.errors import InputError
from nrf.events import Samples, load_frames
from nrf.events.sensor import Sensor

STAGE = "16x20,merge,crop=2:14:4:20,flip=x"


def camera(folder: Path) -> tuple[Path, np.ndarray]:  # type: ignore[type-arg]
    """A file of events, and the camera's own frames of 1 ms."""
    rng = np.random.default_rng(0)
    columns = {"x": rng.integers(0, 20, 400), "y": rng.integers(0, 16, 400), "p": rng.integers(0, 2, 400)}
    path = folder / "events.npz"
    np.savez(path, t=np.sort(rng.integers(0, 10_000, 400)), **columns, sensor=np.array([16, 20]))
    return path, load_frames(path, 1e-3, (2, 16, 20))


def test_events_and_frames_of_the_camera_pass_the_stage_and_frames_of_the_network_do_not(
    tmp_path: Path,
) -> None:
    path, frames = camera(tmp_path)
    wanted = frames.sum(axis=1, keepdims=True)[:, :, 2:14, 4:20][..., ::-1]
    assert wanted.sum() > 100
    for given in (path, frames, wanted):
        assert np.array_equal(load_frames(given, 1e-3, (1, 12, 16), STAGE), wanted)
    assert np.array_equal(next(iter(Samples([path], 1e-3, (1, 12, 16), sensor=STAGE))).frames, wanted)


def test_a_stage_that_gives_another_shape_is_refused(tmp_path: Path) -> None:
    path, _ = camera(tmp_path)
    with pytest.raises(InputError, match=r"gives \(1, 12, 16\), the input takes \(2, 12, 16\)"):
        load_frames(path, 1e-3, (2, 12, 16), STAGE)


@pytest.mark.parametrize(
    "text",
    ["", "128", "8x8,crop=0:9:0:8", "8x8,crop=4:4:0:8", "8x8,flop", "8x8,merge=2", "8x8,flip=z", "ax8"],
)
def test_what_is_no_sensor_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="sensor is '") as error:
        Sensor.parse(text)
    assert "\n" not in str(error.value)
