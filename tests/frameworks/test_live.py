"""Every framework makes networks here and now, in its own environment, and the reference matches them."""

from pathlib import Path

import pytest

from tests.frameworks.cases import FRAMEWORKS
from tests.frameworks.goldens import case_names
from tests.frameworks.witnesses import make_networks, pairs

FIRST = 70_000  # seeds of no golden, and of no network behind docs/frameworks.md
LIVE = [
    pytest.param(name, id=name, marks=pytest.mark.needs_vendor(entry.vendor))
    for name, entry in FRAMEWORKS.items()
]


@pytest.mark.parametrize("name", LIVE)
def test_the_reference_matches_new_networks_of(name: str, tmp_path: Path) -> None:
    """One network for every kind of neuron, dense, convolutional and recurrent, as it is by default."""
    framework = FRAMEWORKS[name]
    cases = [case for case in case_names(framework) if case.endswith(("_default", "_each"))]
    make_networks(framework, tmp_path, FIRST, cases=cases, timeout=180)
    made = list(pairs(tmp_path))
    assert [pair.case for pair in made] == sorted(cases)
    for pair in made:
        match = pair.match(framework)
        assert match.spikes > 0
        assert match.differ == 0, f"{pair.model.name}: {match.departs}"
