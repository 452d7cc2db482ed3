"""Programs that the rules accept, through the device code on a fake Speck board, against the simulator.

    python benchmarks/speck_board.py --programs 500

Random graphs (skips, several sources per core, equal kernels, biases with the slow clock, layers split over
cores, linear layers) are checked, lowered and played to the fake board of the tests (fake_samna) with any
setting of everything that SynSense does not document. The board must give the spikes of the
asynchronous simulator, population by population, so that no layer can be exchanged. Needs `nrf setup sinabs`.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.backends.speck.fake_board import fake_board, play_random


def main() -> None:
    """Print the counts; exit code 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1000)
    arguments = parser.parse_args()
    seed, traits, differ, spikes, refused = arguments.seed, Counter[str](), [], 0, 0
    played = 0
    with fake_board() as ask:
        while played < arguments.programs:
            if case := play_random(ask, seed):
                played += 1
                traits.update(case.traits)
                spikes += case.spikes
                differ += [seed] if case.differences else []
            else:
                refused += 1
            seed += 1
    listed = ", ".join(f"{name} {count}" for name, count in traits.items())
    print(f"{played} programs played, {refused} graphs refused by the rules; with {listed}")
    print(f"{spikes} spikes; programs with any other spike than the simulator's: {len(differ)} {differ[:9]}")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
