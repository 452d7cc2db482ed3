"""What is done so far, in one file beside the result: after a kill, the same command goes on from there.

The file holds the parameters after every stage, is written whole or not at all, and answers only to a run of
the same graph, chip, clips and options.
"""

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.archive import Arrays, read_archive, write_archive
from nrf.errors import InputError

VERSION = 2
Stage = dict[str, NDArray[np.generic]]


class SavedStages:
    """Stages by name. Without a path nothing is written."""

    def __init__(self, path: Path | None, identity: str) -> None:
        self.path, self.identity, self.stages = path, identity, dict[str, Stage]()
        if path is not None and path.exists():
            header, arrays = read_archive(path, "state of nrf tune", VERSION, "delete it")
            if header.get("identity") != identity:
                raise InputError(
                    f"{path}: was left by a run with another graph, target, input or options; delete it to "
                    "start afresh, or repeat that run to go on with it"
                )
            try:
                names = msgspec.convert(header.get("names"), list[tuple[str, str]])
                for n, (stage, name) in enumerate(names):
                    self.stages.setdefault(stage, {})[name] = arrays[str(n)]
            except (ValueError, KeyError) as error:
                raise InputError(f"{path}: not a state of nrf tune ({error}); delete it") from error

    def put(self, stage: str, arrays: Stage) -> None:
        """Keep what a stage gave."""
        self.stages[stage] = arrays
        if self.path is not None:
            names = [(stage, name) for stage, part in self.stages.items() for name in part]
            whole: Arrays = {str(n): self.stages[stage][name] for n, (stage, name) in enumerate(names)}
            header = {"version": VERSION, "identity": self.identity, "names": names}
            write_archive(self.path, header, whole)
