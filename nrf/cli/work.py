"""What a run had to do on a chip: counts of every population, and energy where it has a source."""

from typing import TYPE_CHECKING

from nrf.cli.common import print_table, say

PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"), (1e-12, "p"))

if TYPE_CHECKING:
    from nrf.backends.border import Chip
    from nrf.backends.conformance.work import Load


def print_work(loads: "list[Load]", chip: "Chip", clips: int = 1) -> None:
    """One line per population, then power, energy and latency, and what limits."""
    from nrf.backends.conformance.work import busiest, costs

    titles = ("population", "cores", "spikes", "synaptic operations", "messages", "updates", "peak per step")
    rows = []
    for load in loads:
        if load.core is None:
            cores = sum(each.population == load.population and each.core is not None for each in loads)
            counts = (load.synaptic_operations, load.messages, load.membrane_updates, load.peak)
            rows.append((load.population, cores, load.spikes, *counts))
    print_table(titles, rows)
    for cost in costs(chip, loads):
        energy = cost.unit == "J"
        low, high = (value / (clips if energy else 1) for value in cost.band)
        band = _band(low, high, cost.unit)
        say(f"{cost.title}: {band}{' per clip' * energy}, from {cost.basis} ({cost.status}: {cost.source})")
    if limits := busiest(loads):
        population, core = limits
        most = f"'{population.population}' ({population.synaptic_operations:,} synaptic operations)"
        say(f"most work: {most}; busiest core: {core.core} ('{core.population}', {core.peak:,} in a step)")


def _band(low: float, high: float, unit: str) -> str:
    """Two figures in one unit, such as `0.74 to 0.76 us`."""
    scale, prefix = next(((s, p) for s, p in PREFIXES if high >= s), PREFIXES[-1])
    texts = [f"{value / scale:.3g}" for value in (low, high)]
    return f"{' to '.join(dict.fromkeys(texts))} {prefix}{unit}"
