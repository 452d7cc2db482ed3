"""What was changed on the way to the chip, before and after: repairs, rewrites, tuning, rounding."""

from nrf.backends.conformance.judge import BUILTIN, GOLDEN
from nrf.backends.conformance.report import Measured, Report, digits
from nrf.containers import parse_json

Change = dict[str, str]  # where, what, before, after


def changes(report: Report) -> list[Change]:
    """Everything that makes the chip's integers another thing than the file, in the order of the way."""
    graph, lowered = report.graph, report.lowered
    found = [_change("", "repaired while reading", "", text) for text in graph.repairs]
    if "tuned" in graph.metadata:
        found.append(_tuned(str(graph.metadata["tuned"])))
        found += [
            _kept(entry) for entry in report.measured if entry.rung == GOLDEN and entry.runtime == BUILTIN
        ]
    if "grid" in graph.metadata:
        found.append(_change("", "rounded at export", "float", f"numbers of {graph.metadata['grid']}"))
    for rewrite in lowered.rewrites if lowered else ():
        found.append(_change(rewrite.node, rewrite.rule.replace("_", " "), "", rewrite.message))
    for loss in lowered.losses if lowered else ():
        scores = {"F1 alone": loss.f1, "F1 together": loss.f1_together, "membrane rms, V": loss.membrane_rms}
        known = [f"{name} {value:.4g}" for name, value in scores.items() if value is not None]
        notes = [f"{key} {value}" for key, value in loss.notes.items()]
        found.append(_change(loss.population, "numbers", "float", "; ".join([loss.rounding, *known, *notes])))
    return found


def _change(where: str, what: str, before: str, after: str) -> Change:
    return {"where": where, "what": what, "before": before, "after": after}


def _kept(entry: Measured) -> Change:
    """What tuning did to the spikes of a population, or to the answers: original before, chip after."""
    figures = entry.figures
    if "clips" in figures:
        agree = f"{figures['clips_agree']:,.0f} of {figures['clips_decided']:,.0f} decided clips agree"
        before = ["", agree]
        if "accuracy" in figures:
            right = figures["accuracy"] + figures["accuracy_drop"], figures["accuracy"]
            before = [f"accuracy {digits(right[0])}", f"accuracy {digits(right[1])}; {agree}"]
        return _change(entry.node, "answers, original and chip", *before)
    counts = [f"{figures[f'{side}_spikes']:,.0f} spikes" for side in ("reference", "candidate")]
    return _change(
        entry.node, "spikes, original and chip", counts[0], f"{counts[1]}, F1 {digits(figures['f1'])}"
    )


def _tuned(text: str) -> Change:
    """How a graph was tuned, from its metadata; whoever wrote them, they are only shown."""
    try:
        did = parse_json(text)
        original = f"{did['original']['name']}, {did['original']['checksum']}"
        return _change("", f"tuned for {did['target']}", original, f"{did['kept']}, {did['setting']}")
    except (ValueError, KeyError, TypeError):
        return _change("", "tuned", "", text)
