"""Verdicts: figures held against tolerances.

Tolerances come from the target, `[tolerances.L2]` with `<figure>_min` and `<figure>_max`, or from a case. A
graph that was exported on the chip's grid is held to `[tolerances.L2_on_grid]` as well: nothing is rounded
in lowering, so small faults have nowhere to hide. `[tolerances.L2_asynchronous]` replaces the section for
runtimes whose spikes depend on the order of events. Against a golden recording the reference must not differ
by one spike, and runtimes are held to L2.

A population that never fires, neither in the reference nor in the candidate, agrees about nothing: its spikes
get no verdict, and then the whole report has none unless something else failed. The same holds for classes
where all have the same score in every clip.
"""

from collections.abc import Sequence

from nrf.backends.border import Chip, Tolerances
from nrf.backends.conformance.report import Check, Measured, Run
from nrf.export.graph import SPIKING, Graph

BUILTIN = "builtin"
GOLDEN = "golden"  # the rung that compares with somebody else's recording
EXACT = {"spikes_differ_max": 0.0, "membrane_differ_max": 0.0}
COUNTS = {"count_error", "neuron_count_error", "spread"}  # what an asynchronous chip can be held to
MEMBRANES = {"membrane", "membrane_rms", "membrane_differ"}
TIED = "all classes have the same score in every clip; use an input that makes the output answer"
SILENT = "no spikes on either side; use an input that makes this node fire"


def tolerances_for(chip: Chip, on_grid: bool, given: Tolerances | None = None) -> Tolerances:
    """Per rung: the target's, tightened on the grid, replaced by those given."""
    limits: Tolerances = {}
    for name, part in sorted(chip.tolerances.items()):  # L2 before L2_on_grid
        rung = name.removesuffix("_on_grid")
        if on_grid or rung == name:
            limits[rung] = limits.get(rung, {}) | part
    return {"L0": EXACT, **limits, **(given or {})}


def judged(measured: list[Measured], graph: Graph, runs: Sequence[Run], limits: Tolerances) -> list[Check]:
    """All checks of all runtimes, rung by rung, node by node."""
    if "tuned" in graph.metadata:  # golden is the float original: answers are the same, spikes are not
        measured = [entry for entry in measured if entry.rung != GOLDEN]
    golden = [entry for entry in measured if entry.rung == GOLDEN]
    ours = [entry for entry in golden if entry.runtime == "reference"]
    same = {"spikes_differ_max": 0.0, "agreement_min": 1.0}
    checks = [check for entry in ours for check in judge(entry, same, set(entry.figures))]
    for run in runs:
        for rung in ("L0", "L1", "L2", "L3", *([GOLDEN] if golden else [])):
            entries = [entry for entry in measured if (entry.runtime, entry.rung) == (run.runtime, rung)]
            missing: dict[str, str] = {}  # node, or "" for all -> why it is not judged
            if not entries:
                missing[""] = _why_not(run, rung, graph)
            for entry in entries:
                task = is_task(entry)
                section = _section("L3" if task else "L2" if rung == GOLDEN else rung, run, limits)
                given = limits.get(section, {})
                if not given:
                    missing[""] = f"no tolerance in {section}: the figures are reported, not judged"
                checks += _task_checks(entry, given) if task else _node_checks(entry, graph, run, given)
            if entries and rung != "L3":
                seen = {entry.node for entry in entries}
                unseen = f"{run.runtime} did not record this node"
                missing |= {node: unseen for node in graph.neurons if node not in seen}
            checks += [
                Check(run.runtime, rung, node, "not applicable", reason) for node, reason in missing.items()
            ]
    return checks


def is_task(entry: Measured) -> bool:
    """Whether an entry is about what the host makes of the output, and not about a population."""
    return "reference_spikes" not in entry.figures


def _section(rung: str, run: Run, limits: Tolerances) -> str:
    asynchronous = f"{rung}_asynchronous"
    return rung if run.exact or asynchronous not in limits else asynchronous


def judge(entry: Measured, tolerances: dict[str, float], only: set[str] | None = None) -> list[Check]:
    """Hold the figures of one node against tolerances; `only` names those that apply.

    >>> judge(Measured("builtin", "L2", "lif1", {"f1": 0.9}), {"f1_min": 0.95})[0].verdict
    'fail'
    """
    checks = []
    key = (entry.runtime, entry.rung, entry.node)
    for name, limit in tolerances.items():
        figure, _, side = name.rpartition("_")
        if only is not None and figure not in only:
            continue
        value = entry.figures.get(figure)
        if value is None:
            reason = f"{entry.runtime} records nothing of this node from which to tell"
            checks.append(Check(*key, "not applicable", reason, figure))
            continue
        good = value >= limit if side == "min" else value <= limit
        sign = ">=" if side == "min" else "<=" if limit else "="
        size = _size(entry.figures, figure)
        checks.append(Check(*key, "pass" if good else "fail", size, figure, value, f"{sign} {limit:g}"))
    return checks


def _node_checks(entry: Measured, graph: Graph, run: Run, limits: dict[str, float]) -> list[Check]:
    """One node on one rung: its tolerances, and that the declared latency is the measured one."""
    key = (entry.runtime, entry.rung, entry.node)
    silent = not entry.figures["reference_spikes"] and not entry.figures["candidate_spikes"]
    fires = isinstance(graph.nodes[entry.node], SPIKING)
    only = None if run.exact else COUNTS
    checks = []
    if silent:
        only = MEMBRANES if run.exact else set()
    if silent and fires:
        checks.append(Check(*key, "no verdict", SILENT, "f1"))
    checks += judge(entry, limits, only)
    lag, declared = entry.figures["lag"], entry.figures["latency"]
    if run.exact and entry.rung != "L0" and not (silent and fires and lag == declared):
        checks.append(Check(*key, "pass" if lag == declared else "fail", "", "lag", lag, f"= {declared:g}"))
    return checks


def _task_checks(entry: Measured, limits: dict[str, float]) -> list[Check]:
    """Coordinates, or the classes of one output: those tolerances that it has figures for."""
    if "clips" in entry.figures and "agreement" not in entry.figures:
        return [Check(entry.runtime, entry.rung, entry.node, "no verdict", TIED, "agreement")]
    return judge(entry, limits, set(entry.figures))


def _size(figures: dict[str, float], figure: str) -> str:
    """How many clips an agreement speaks of, or how many spikes an F1, out of all that either side has."""
    if figure == "agreement":
        return f"{figures['clips_agree']:,.0f} of {figures['clips_decided']:,.0f} decided clips agree"
    if figure != "f1" or not (differ := figures.get("spikes_differ")):
        return ""
    either = (figures["reference_spikes"] + figures["candidate_spikes"] + differ) / 2
    return f"{differ:,.0f} of {either:,.0f} spikes differ"


def _why_not(run: Run, rung: str, graph: Graph) -> str:
    if rung == "L0" and run.runtime == BUILTIN:
        return "builtin is what the other runtimes are held to"
    if rung == "L0":
        return "its spikes depend on the order of events, so there is nothing to be identical to"
    if rung == "L1":
        return "only builtin can be fed the reference's spikes; L0 ties this runtime to it"
    if rung == "L3" and graph.contract.readout is None and graph.contract.classes is None:
        return "the contract does not say what the host reads; for a class give --classes 0"
    return f"{run.runtime} recorded nothing to compare"
