"""The trained preset on its chip: exact step by step, and alive event by event.

`speck2f.nir` is what `nrf train --preset speck2f` and `nrf export` gave; `benchmarks/speck_order.py`
measures it.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nrf.export import read_graph

from .graphs import lower

MODEL = Path(__file__).parent / "speck2f.nir"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "speck_order.py"
    spec = importlib.util.spec_from_file_location("speck_order", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["speck_order"] = module
    spec.loader.exec_module(module)
    return module


def test_the_model_fits_and_lowers_without_rounding() -> None:
    program = lower(read_graph(MODEL))
    assert {loss.rounding for loss in program.lowered.losses} == {"exact"}
    assert all(each.threshold & (each.threshold - 1) == 0 for each in program.populations), "powers of two"


def test_steps_are_exact_and_event_order_costs_little(benchmark: ModuleType) -> None:
    result = benchmark.measure(str(MODEL), clips=50, orders=10, ordered_clips=8)
    assert result.spikes > 100_000
    assert result.mismatches == 0
    assert result.saturated == 0
    assert result.asynchronous <= 1.3 * result.synchronous
    assert result.asynchronous <= 6.0, "pixels of 64"
    assert result.spread < 0.5
