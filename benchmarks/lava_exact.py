"""Random programs on the built-in simulator and on unmodified Lava, bit by bit: currents, membranes, spikes.

    python benchmarks/lava_exact.py --programs 200 --steps 40

Programs are those of tests/backends/loihi/programs.py: extreme parameters, loops, delays, wide weights (two
synapses per weight), and neurons that reset by subtraction (ATRLIF). Exits with 1 where a number differs.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))
from nrf.backends.loihi.program import LoihiProgram
from tests.backends.loihi.chip import integers
from tests.backends.loihi.programs import clips, programs, side_by_side

TOGETHER = 20  # programs in one run of Lava: starting it is what takes time


def main() -> int:
    """Print what was compared and how much of it differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    totals = dict.fromkeys(("programs", "wide", "subtracting", "numbers", "spikes", "differing"), 0)

    @seed(options.seed)
    @settings(
        max_examples=-(-options.programs // TOGETHER),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        parts = [data.draw(programs(prefix=f"p{number}_")) for number in range(TOGETHER)]
        program, frames = side_by_side(parts), data.draw(clips(steps=options.steps))
        ours, theirs = integers(program, frames), integers(program, frames, "lava")
        totals["programs"] += len(parts)
        totals["wide"] += sum(map(has_wide, parts))
        totals["subtracting"] += sum(any(n.subtracts for n in part.neurons.values()) for part in parts)
        totals["numbers"] += sum(values.size for values in ours.membranes.values())
        totals["spikes"] += sum(spikes.count for spikes in ours.spikes.values())
        for name, values in ours.membranes.items():
            totals["differing"] += int(np.count_nonzero(values != theirs.membranes[name]))
        for name in ours.spikes:
            totals["differing"] += int(np.abs(ours.dense(name) - theirs.dense(name)).sum())

    compare()
    for key, value in totals.items():
        print(f"{key}: {value}")
    return int(totals["differing"] > 0)


def has_wide(program: LoihiProgram) -> bool:
    """Whether two synapses of a program lead the same way, with different exponents."""
    ways = [(one.source, one.target, one.delay) for one in program.synapses]
    return len(set(ways)) < len(ways)


if __name__ == "__main__":
    sys.exit(main())
