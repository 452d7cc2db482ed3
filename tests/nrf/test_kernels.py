"""Compiled code is never stale: a constant in another file is part of the cache's key."""

import os
import subprocess
import sys
from pathlib import Path


def write_package(folder: Path, value: int) -> None:
    (folder / "chip").mkdir(exist_ok=True)
    (folder / "chip" / "__init__.py").touch()
    (folder / "chip" / "widths.py").write_text(f"LIMIT = {value}\n")
    (folder / "chip" / "constants.py").write_text("from chip.widths import LIMIT\n")
    (folder / "chip" / "loops.py").write_text(
        "from nrf.kernels import compiled\n"
        "from chip.constants import LIMIT\n\n"
        "@compiled()\ndef limit():\n    return LIMIT\n"
    )


def limit(folder: Path) -> int:
    """What the kernel answers in a process of its own, which finds the cache of the one before."""
    environment = os.environ | {"NRF_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    code = "from chip.loops import limit; print(limit())"
    run = [sys.executable, "-c", code]
    return int(
        subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    )


def test_a_constant_in_another_file_changes_the_compiled_code(tmp_path: Path) -> None:
    write_package(tmp_path, 1)
    assert limit(tmp_path) == 1
    caches = list((tmp_path / "cache" / "kernels").iterdir())
    assert limit(tmp_path) == 1
    assert list((tmp_path / "cache" / "kernels").iterdir()) == caches  # the same sources share a cache
    write_package(tmp_path, 2)
    assert limit(tmp_path) == 2


def test_other_peoples_kernels_keep_their_cache() -> None:
    import numba

    from nrf.kernels import compiled

    before = numba.config.CACHE_DIR
    compiled()(lambda x: x)
    assert before == numba.config.CACHE_DIR
