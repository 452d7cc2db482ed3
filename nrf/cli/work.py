"""What a run had to do on a chip: counts of every population, and energy where it has a source."""

from typing import TYPE_CHECKING

from nrf.cli.common import print_table

if TYPE_CHECKING:
    from nrf.backends.border import Chip
    from nrf.backends.conformance.work import Load


def print_work(loads: "list[Load]", chip: "Chip", dt: float | None, clips: int = 1) -> None:
    """One line per population, then energy, latency, and what limits."""
    from nrf.backends.conformance.work import busiest, costs, through

    titles = ("population", "cores", "spikes", "synaptic operations", "messages", "updates", "peak per step")
    rows = []
    for load in loads:
        if load.core is None:
            cores = sum(each.population == load.population and each.core is not None for each in loads)
            counts = (load.synaptic_operations, load.messages, load.membrane_updates, load.peak)
            rows.append((load.population, cores, load.spikes, *counts))
    print_table(titles, rows)
    for cost in costs(chip, loads, dt):
        low, high = (joules / clips * 1e6 for joules in cost.joules)
        origin = f"from {cost.basis}; {cost.status}: {cost.source}"
        print(f"energy, {cost.title}: {_band(low, high)} uJ per clip ({origin})")
    if delay := through(chip, loads):
        low, high = (seconds * 1e6 for seconds in delay.joules)
        print(f"latency: about {_band(low, high)} us through {delay.basis} ({delay.status}: {delay.source})")
    if limits := busiest(loads):
        population, core = limits
        most = f"'{population.population}' ({population.synaptic_operations:,} synaptic operations)"
        print(f"most work: {most}; busiest core: {core.core} ('{core.population}', {core.peak:,} in a step)")


def _band(low: float, high: float) -> str:
    return f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
