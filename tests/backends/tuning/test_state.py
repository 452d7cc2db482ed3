"""What a killed run of `nrf tune` leaves: read back whole, by the same run only."""

from pathlib import Path

import numpy as np
import pytest

from nrf.backends.border.archive import write_archive
from nrf.backends.tuning.state import VERSION, SavedStages
from nrf.errors import InputError


def test_stages_come_back_whatever_their_nodes_are_called(tmp_path: Path) -> None:
    path, stages = tmp_path / "a.state", {"layer a|b": {"c|d": np.arange(3)}, "layer a": {"b|c|d": np.eye(2)}}
    state = SavedStages(path, "me")
    for stage, arrays in stages.items():
        state.put(stage, arrays)
    found = SavedStages(path, "me").stages
    assert found.keys() == stages.keys()
    for stage, arrays in stages.items():
        np.testing.assert_equal(found[stage], arrays)


def test_the_state_of_another_run_is_refused(tmp_path: Path) -> None:
    SavedStages(tmp_path / "a.state", "me").put("stage", {"x": np.zeros(1)})
    with pytest.raises(InputError, match="another graph, target, input or options"):
        SavedStages(tmp_path / "a.state", "you")


@pytest.mark.parametrize("names", [None, [["a"]], [["a", "b"], ["c", "d"]], 7])
def test_a_damaged_state_is_refused_in_one_line(names: object, tmp_path: Path) -> None:
    header = {"version": VERSION, "identity": "me", "names": names}
    write_archive(tmp_path / "a.state", header, {"0": np.zeros(1)})
    with pytest.raises(InputError, match=r"a\.state: not a state of nrf tune .*; delete it"):
        SavedStages(tmp_path / "a.state", "me")
