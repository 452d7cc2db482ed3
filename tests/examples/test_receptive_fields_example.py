"""The example runs as it is and its pictures show something."""

import subprocess
import sys
from pathlib import Path

from PIL import Image

EXAMPLE = Path(__file__).parents[2] / "examples" / "receptive_fields.py"


def test_example_draws_kernels_and_data(tmp_path):
    subprocess.run([sys.executable, EXAMPLE, tmp_path / "pictures"], check=True)
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == [
        "data.gif",
        "data.png",
        "space_time_kernels.png",
        "spatial_kernels.png",
        "temporal_kernels.png",
    ]
    for name in names:
        with Image.open(tmp_path / "pictures" / name) as image:
            assert min(image.size) >= 100
            assert len(image.convert("RGB").getcolors(maxcolors=1 << 20)) > 3, f"{name} is blank"
