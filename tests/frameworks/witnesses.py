"""Let a framework make networks in its own environment, and hold the reference against what it computed."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nrf.backends.conformance.golden import Match, compare, read_golden
from nrf.backends.vendors.environment import python_of
from nrf.export import Graph, read_graph
from tests.frameworks.cases import Framework

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Pair:
    """A network as its framework wrote it, and as its framework computed it."""

    case: str
    model: Path
    golden: Path

    def read(self, framework: Framework) -> Graph:
        """The graph in its dialect, with the flags of its case."""
        return read_graph(self.model, framework.name, **framework.flags_of(self.case))

    def match(self, framework: Framework) -> Match:
        """How many spikes the reference gives differently, in float64."""
        graph = self.read(framework)
        return compare(graph, read_golden(self.golden, graph))


def pairs(folder: Path) -> Iterator[Pair]:
    """What a witness wrote, in the order of cases and seeds."""
    for model in sorted(folder.glob("*.nir")):
        yield Pair(re.sub(r"_\d+$", "", model.stem), model, model.with_suffix(".npz"))


def run_script(script: str, vendor: str, *arguments: object, timeout: float = 600) -> str:
    """What a script of this folder prints last, run in the environment of a vendor."""
    command = [str(part) for part in (python_of(vendor), HERE / script, *arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, env=environment
    )
    if answer.returncode:
        raise RuntimeError(f"{script}: {answer.stderr.strip()[-2000:]}")
    return answer.stdout.strip().splitlines()[-1]


def make_networks(
    framework: Framework,
    folder: Path,
    first: int,
    count: int | None = None,
    cases: Iterable[str] = (),
    timeout: float = 600,
) -> dict[str, str]:
    """Random networks of a framework, made by itself: COUNT, else one per case; what versions made them."""
    options: list[object] = ["--first", first]
    options += ["--count", count] if count else []
    options += ["--case", *cases] if cases else []
    answer = run_script(f"witness_{framework.name}.py", framework.vendor, folder, *options, timeout=timeout)
    return dict(json.loads(answer))
