"""All rules on a graph; none stops the others."""

from dataclasses import replace

from nrf.backends.speck.chip import Speck
from nrf.backends.speck.number_rules import CONTRACT, NUMBERS
from nrf.backends.speck.placement import MEMORY, PLACES
from nrf.backends.speck.shape_rules import SHAPES
from nrf.backends.speck.structure import structure
from nrf.export.graph import Graph
from nrf.findings import Finding


def check(graph: Graph, chip: Speck, approximate: bool = False) -> list[Finding]:
    """All findings of all rules on a graph. With `approximate` a LIF neuron is only a warning."""
    layers, findings = structure(graph)
    for layer in layers:
        findings += SHAPES.findings(layer, chip)
        findings += NUMBERS.findings(layer, graph.contract, chip)
        findings += MEMORY.findings(layer, chip)
    findings += CONTRACT.findings(graph.contract) + PLACES.findings(layers, graph, chip)
    return [_tolerated(finding) if approximate else finding for finding in findings]


def _tolerated(finding: Finding) -> Finding:
    if finding.rule != "neuron_leaks_linearly":
        return finding
    remedy = "leak and threshold are fitted, with a floor at 0; see the F1 that is printed"
    return replace(finding, severity="warning", remedy=remedy)
