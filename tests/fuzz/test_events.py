"""Files of events, datasets and presets."""

from pathlib import Path

import pytest

from tests.fuzz.slices import EVENTS, found, fuzz, replay


@pytest.mark.parametrize("name", EVENTS)
def test_mutated_files_get_one_line_or_are_read(name: str) -> None:
    fuzz(name, EVENTS)


def test_what_was_once_found_stays_mended(tmp_path: Path) -> None:
    assert found(EVENTS)
    replay(found(EVENTS), tmp_path)
