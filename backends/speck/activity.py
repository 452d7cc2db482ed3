"""How busy the cores would be on given events: past some rate a core's queue fills and the chip stalls."""

from dataclasses import replace

from nrf.backends import reference
from nrf.backends.border import Frames
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.structure import structure
from nrf.errors import InputError
from nrf.export.graph import Graph
from nrf.findings import Finding


def activity(graph: Graph, chip: Speck, frames: Frames) -> list[Finding]:
    """Synaptic operations per second of every core: spikes that arrive, times the neurons that each reaches.

    Spikes are those of the reference on frames (T, *input shape).
    """
    dt, limit = graph.contract.dt, chip.rate.synaptic_operations
    if dt is None:
        raise InputError(f"{graph.name}: no dt is known, so no rate either; give --dt SECONDS")
    recording = reference.run(graph, frames)
    spikes = {name: events.count for name, events in recording.spikes.items()}
    spikes[graph.input] = int(frames.sum())
    findings = []
    for layer in structure(graph)[0]:
        arriving = sum(spikes[source.name] for source in layer.sources)
        rate = arriving * layer.fan_out / (len(frames) * dt)
        message = f"{rate:.3g} synaptic operations per second on this clip, a core does about {limit:.3g}"
        findings.append(Finding("synaptic_operations", "note", layer.node, message))
        if rate > limit:
            remedy = "fewer events (larger thresholds, pooling), a smaller kernel or a stride"
            findings[-1] = replace(findings[-1], severity="warning", remedy=remedy)
    return findings
