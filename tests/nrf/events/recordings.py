"""Made-up recordings."""

import numpy as np

from nrf.events import Events, make


def random_events(
    seed: int, count: int = 500, sensor: tuple[int, int] = (12, 20), last: int = 50_000
) -> Events:
    """Events anywhere on the sensor, at any time before `last` microseconds."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.integers(0, last, count))
    x, y = rng.integers(0, sensor[1], count), rng.integers(0, sensor[0], count)
    return make(t, x, y, rng.integers(0, 2, count), sensor, stop=last)
