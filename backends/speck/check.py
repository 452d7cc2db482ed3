"""All rules on a graph; none stops the others."""

from dataclasses import replace

from nrf.backends.border.chip import Target
from nrf.backends.speck import number_rules, placement_rules, shape_rules  # noqa: F401  they register themselves
from nrf.backends.speck.rule import LAYER, WHOLE
from nrf.backends.speck.structure import structure
from nrf.export.graph import Graph
from nrf.findings import Finding


def check(graph: Graph, target: Target, *, approximate: bool = False) -> list[Finding]:
    """All findings of all rules on a graph. With `approximate` a LIF neuron is only a warning."""
    layers, findings = structure(graph)
    for layer in layers:
        findings += LAYER.findings(layer, graph, target)
    findings += WHOLE.findings(layers, graph, target)
    return [_tolerated(found) if approximate else found for found in findings]


def _tolerated(found: Finding) -> Finding:
    if found.rule != "neuron_leaks_linearly":
        return found
    remedy = "leak and threshold are fitted, with a floor at 0; see the F1 that is printed"
    return replace(found, severity="warning", remedy=remedy)
