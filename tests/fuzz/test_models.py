"""Files of models: graphs, programs, recordings, chips, checkpoints."""

from pathlib import Path

import pytest

from tests.fuzz.slices import MODELS, found, fuzz, replay


@pytest.mark.parametrize("name", MODELS)
def test_mutated_files_get_one_line_or_are_read(name: str) -> None:
    fuzz(name, MODELS)


def test_what_was_once_found_stays_mended(tmp_path: Path) -> None:
    assert found(MODELS)
    replay(found(MODELS), tmp_path)
