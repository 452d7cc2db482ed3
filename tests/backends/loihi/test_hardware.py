"""The chip's runtime up to the border: what is missing is said, and the way there is walked with a fake."""

from pathlib import Path

import nir
import numpy as np
import pytest

from nrf.backends.border import RunOptions
from nrf.backends.loihi import BACKEND
from nrf.backends.loihi.run import run_lava
from nrf.errors import InputError
from tests.backends.loihi.chip import integers, lower, run
from tests.backends.loihi.graphs import chain, lif
from tests.backends.loihi.test_lava import assert_same

FAKE_INTEL = Path(__file__).parent / "fake_intel_worker.py"


def small_program():  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    taus = lif(6)
    taus.tau = np.repeat([4e-3, 8e-3], 3)
    graph = chain(nir.Affine(rng.normal(1, 2, (6, 5)), np.zeros(6)), taus, shape=(5,))
    return lower(graph)


@pytest.mark.needs_vendor("lava")
def test_without_intels_extension_one_line_says_so() -> None:
    absent = BACKEND.runtimes["loihi2"].absent()
    if absent is None:
        pytest.skip("there is a Loihi 2 here")
    assert "lava-loihi is not installed" in str(absent) and "\n" not in str(absent)
    with pytest.raises(InputError, match="lava-loihi is not installed"):
        BACKEND.run(small_program(), np.zeros((3, 5)), "loihi2", RunOptions())


@pytest.mark.needs_vendor("lava")
def test_with_a_fake_extension_populations_are_split_and_put_together_again() -> None:
    program = small_program()
    frames = (np.random.default_rng(1).random((20, 5)) < 0.4).astype(np.int64)
    found = run_lava(program, frames, chip=True, worker=FAKE_INTEL)
    assert found.provenance.device == "chip" and found.provenance.runtime == "loihi2"
    assert found.provenance.versions["lava-loihi"] == "FAKE"
    assert_same(integers(program, frames), found)


def test_a_simulators_recording_says_simulation() -> None:
    assert BACKEND.runtimes["builtin"].device == BACKEND.runtimes["lava"].device == "simulation"
    assert run(small_program(), np.zeros((3, 5))).provenance.device == "simulation"
