"""The example trains and leaves pictures behind."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_and_look.py"


def test_training_example_writes_its_pictures(tmp_path):
    if not EXAMPLE.exists():
        pytest.skip("examples are not beside the tests")
    done = subprocess.run(
        [sys.executable, EXAMPLE, "tiny", tmp_path], check=True, capture_output=True, text=True, timeout=300
    )
    assert "held-out error" in done.stdout
    for name, size in (
        ("kernels", (4 * 24 - 4, 4 * 24 - 4)),
        ("predictions", (4 * 132 - 4, 128)),
        ("maps", (200, 268)),
    ):
        with Image.open(tmp_path / f"{name}.png") as image:
            assert image.size == size, name
            assert len(image.getcolors(1 << 20)) > 3, name
