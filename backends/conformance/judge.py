"""Verdicts: figures held against tolerances.

Tolerances come from the target, `[tolerances.L2]` with `<figure>_min` and `<figure>_max`, or from a case. A
graph that was exported on the chip's grid is held to `[tolerances.L2_on_grid]` as well: nothing is rounded
in lowering, so small faults have nowhere to hide. `[tolerances.L2_asynchronous]` replaces the section for
runtimes whose spikes depend on the order of events.
"""

from collections.abc import Sequence

from nrf.backends.border import Chip, Runtime, Tolerances
from nrf.backends.conformance.report import Check, Measured, Verdict
from nrf.export.graph import SPIKING, Graph

BUILTIN = "builtin"
RUNGS = ("L0", "L1", "L2", "L3")
EXACT = {"spikes_differ_max": 0.0, "membrane_differ_max": 0.0}
COUNTS = {"count_error", "neuron_count_error", "spread"}  # what an asynchronous chip can be held to
MEMBRANES = {"membrane", "membrane_rms", "membrane_differ"}


def is_on_grid(graph: Graph, chip: Chip) -> bool:
    """Whether the graph says of itself that its numbers are the chip's (`nrf export --grid`)."""
    return graph.metadata.get("grid") == chip.name


def tolerances_for(chip: Chip, on_grid: bool, given: Tolerances | None = None) -> Tolerances:
    """Per rung: the target's, tightened on the grid, replaced by those given."""
    suffix = "_on_grid"
    limits = {name: dict(part) for name, part in chip.tolerances.items() if not name.endswith(suffix)}
    for name, part in chip.tolerances.items():
        if on_grid and name.endswith(suffix):
            limits[name.removesuffix(suffix)] = limits.get(name.removesuffix(suffix), {}) | part
    return {"L0": EXACT, **limits, **(given or {})}


def judged(
    measured: list[Measured], graph: Graph, runtimes: Sequence[Runtime], limits: Tolerances
) -> list[Check]:
    """All checks of all runtimes, rung by rung, node by node."""
    checks = []
    for runtime in runtimes:
        for rung in RUNGS:
            entries = [entry for entry in measured if (entry.runtime, entry.rung) == (runtime.name, rung)]
            section = f"{rung}_asynchronous"
            section = rung if runtime.exact or section not in limits else section
            given = limits.get(section, {})
            if not entries:
                checks.append(Check.not_applicable(runtime.name, rung, "", _why_not(runtime, rung, graph)))
            elif not given:
                reason = f"no tolerance in {section}: the figures are reported, not judged"
                checks.append(Check.not_applicable(runtime.name, rung, "", reason))
            for entry in entries:
                if rung == "L3":
                    checks += judge(entry, given)
                else:
                    checks += _node_checks(entry, graph, runtime, given)
            if entries and rung != "L3":
                seen = {entry.node for entry in entries}
                checks += [
                    Check.not_applicable(runtime.name, rung, node, f"{runtime.name} did not record this node")
                    for node in graph.neurons
                    if node not in seen
                ]
    return checks


def judge(entry: Measured, tolerances: dict[str, float], only: set[str] | None = None) -> list[Check]:
    """Hold the figures of one node against tolerances; `only` names those that apply.

    >>> judge(Measured("builtin", "L2", "lif1", {"f1": 0.9}), {"f1_min": 0.95})[0].verdict
    'fail'
    """
    checks = []
    for key, limit in tolerances.items():
        figure, _, side = key.rpartition("_")
        if only is not None and figure not in only:
            continue
        value = entry.figures.get(figure)
        if value is None:
            reason = f"{entry.runtime} records nothing of this node from which to tell"
            checks.append(Check.not_applicable(entry.runtime, entry.rung, entry.node, reason, figure))
            continue
        good = value >= limit if side == "min" else value <= limit
        sign = ">=" if side == "min" else "<=" if limit else "="
        verdict: Verdict = "pass" if good else "fail"
        node = (entry.runtime, entry.rung, entry.node)
        checks.append(Check(*node, figure, value, f"{sign} {limit:g}", verdict))
    return checks


def _node_checks(entry: Measured, graph: Graph, runtime: Runtime, limits: dict[str, float]) -> list[Check]:
    """One node on one rung: its tolerances, and that the declared latency is the measured one."""
    silent = not entry.figures["reference_spikes"] and not entry.figures["candidate_spikes"]
    node = (entry.runtime, entry.rung, entry.node)
    checks = []
    only = None if runtime.exact else COUNTS
    if silent:
        only = MEMBRANES if runtime.exact else set()
        if isinstance(graph.nodes[entry.node], SPIKING):
            reason = "no spikes on either side; use an input that makes this node fire"
            checks.append(Check.not_applicable(*node, reason, "f1"))
    checks += judge(entry, limits, only)
    if runtime.exact and entry.rung != "L0":
        lag, declared = entry.figures["lag"], entry.figures["latency"]
        checks.append(Check(*node, "lag", lag, f"= {declared:g}", "pass" if lag == declared else "fail"))
    return checks


def _why_not(runtime: Runtime, rung: str, graph: Graph) -> str:
    if rung == "L0" and runtime.name == BUILTIN:
        return "builtin is what the other runtimes are held to"
    if rung == "L0":
        return "its spikes depend on the order of events, so there is nothing to be identical to"
    if rung == "L1":
        return "only builtin can be fed the reference's spikes; L0 ties this runtime to it"
    if rung == "L3" and graph.contract.readout is None:
        return "the contract has no readout, so there are no coordinates"
    return f"{runtime.name} recorded nothing to compare"
