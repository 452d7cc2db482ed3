"""All rules on a graph; none stops the others."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from nrf.backends.speck import number_rules, placement_rules, shape_rules  # noqa: F401  they register themselves
from nrf.backends.speck.rule import GRAPH_RULES, LAYER_RULES
from nrf.backends.speck.structure import Layer, structure
from nrf.backends.target import Target
from nrf.export.graph import Graph
from nrf.findings import Finding


def check(
    graph: Graph, target: Target, frames: NDArray[Any] | None = None, *, approximate: bool = False
) -> list[Finding]:
    """All findings of all rules on a graph.

    With `approximate` a LIF neuron is only a warning. With `frames` of a clip (T, *input shape), the synaptic
    operations per second of every core on that clip are reported as well.
    """
    layers, findings = structure(graph)
    for layer in layers:
        for judge in LAYER_RULES:
            findings += [replace(found, rule=judge.__name__) for found in judge(layer, graph, target)]
    for judge_all in GRAPH_RULES:
        findings += [replace(found, rule=judge_all.__name__) for found in judge_all(layers, graph, target)]
    if frames is not None and not any(found.severity == "error" for found in findings):
        findings += _load(layers, graph, target, frames)
    return [_tolerated(found) if approximate else found for found in findings]


def _tolerated(found: Finding) -> Finding:
    if found.rule != "neuron_leaks_linearly":
        return found
    remedy = "leak and threshold are fitted; see the F1 that is printed"
    return replace(found, severity="warning", remedy=remedy)


def _load(layers: Sequence[Layer], graph: Graph, target: Target, frames: NDArray[Any]) -> list[Finding]:
    """Synaptic operations per second: spikes that arrive at a core, times the neurons that each reaches."""
    from nrf.backends import reference

    dt = graph.contract.dt
    if dt is None:
        return []
    recording, limit = reference.run(graph, frames), target["rate.synaptic_operations"]
    findings = []
    for layer in layers:
        spikes = sum(
            float(frames.sum())
            if source.name == graph.input
            else float(recording.events(source.name).n.sum())
            for source in layer.sources
        )
        rate = spikes * layer.fan_out / (len(frames) * dt)
        findings.append(
            Finding(
                "synaptic_operations",
                "warning" if rate > limit else "note",
                layer.node,
                f"{rate:.3g} synaptic operations per second on this clip, a core does about {limit:.3g}",
                "fewer events (larger thresholds, pooling), a smaller kernel or a stride"
                if rate > limit
                else "",
            )
        )
    return findings
