"""The example runs as it is and agrees with Norse."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "norse_to_nir.py"


def test_the_example_exports_a_norse_model_and_agrees_with_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLE, tmp_path], check=True, capture_output=True, text=True)
    found = re.search(r"(\d+) spikes in layer 1; outputs differ from Norse's by (\S+) V", done.stdout)
    assert found and int(found[1]) > 100 and float(found[2]) < 1e-6
    assert (tmp_path / "norse.nir").is_file() and (tmp_path / "norse.npz").is_file()
