"""The speed table's code runs, and its two sides agree; what it measures is `make bench`."""

import pytest

from benchmarks.speed import __main__ as bench
from nrf.backends.speck import BACKEND as SPECK


@pytest.mark.parametrize("function", [bench.fewer_events, bench.recurrent, bench.asynchronous_against_before])
def test_our_own_lines_run_at_a_small_size(function: object, capsys: pytest.CaptureFixture[str]) -> None:
    name = getattr(function, "__name__", "")
    assert _lines(name) >= 1


def test_the_c_loop_fires_as_we_do() -> None:
    assert _lines("share_of_c") == 6


def test_sinabs_fires_as_we_do() -> None:
    if absent := SPECK.runtimes["sinabs"].absent():
        pytest.skip(str(absent))
    assert _lines("speck_against_sinabs") == 3


def _lines(name: str) -> int:
    rows = list(getattr(bench, name)(bench.Size(short=True, repeats=1, trained=bench.DOCS)))
    assert all(row.figure > 0 for row in rows)
    return len(rows)
