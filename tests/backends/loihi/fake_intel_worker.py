"""A FAKE of Intel's lava-loihi extension: pretends to be installed, and runs CPU models instead of a chip.

It exercises our code up to the border that cannot be crossed without a chip, and proves nothing about one.
"""

import sys
from pathlib import Path
from typing import Any


def run(
    header: dict[str, Any], arrays: dict[str, Any], frames: Any, options: dict[str, Any]
) -> dict[str, Any]:
    from lava.magma.core import run_configs
    from lava.utils import loihi

    def fake_hardware() -> Any:
        return run_configs.Loihi2SimCfg(select_tag="fixed_pt")

    loihi.is_installed = lambda: True
    run_configs.Loihi2HwCfg = fake_hardware
    sys.path.append(str(Path(__file__).parents[3] / "backends" / "loihi" / "lava_worker"))
    import worker

    result: dict[str, Any] = worker.run(header, arrays, frames, options)
    result["versions"]["lava-loihi"] = "FAKE"
    return result
