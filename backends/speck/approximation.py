"""What `approximate` keeps of the spikes on clips that nothing was fitted on, in both modes."""

from collections.abc import Iterator

from nrf.backends.border import Clips, Loss, RunOptions
from nrf.backends.lowering.calibration import Calibration
from nrf.backends.speck.calibrate import agreement
from nrf.backends.speck.program import SpeckProgram
from nrf.backends.speck.run import run
from nrf.findings import Finding

POOR = 0.7  # F1 below which a warning says so


def held_out(clips: Clips) -> tuple[Clips, Clips]:
    """Clips to fit on, and a third of them to judge by; of a single clip the last third of its steps."""
    if len(clips) == 1:
        cut = max(2 * len(clips[0]) // 3, 1)
        return [clips[0][:cut]], [clips[0][cut:]]
    cut = max(len(clips) // 3, 1)
    return clips[:-cut], clips[-cut:]


def kept(program: SpeckProgram, held: Calibration) -> dict[str, dict[str, str]]:
    """Per population: F1 and counts (over the reference's) of all of them together, in both modes."""
    notes: dict[str, dict[str, str]] = {each.node: {} for each in program.populations}
    for mode, name in (("builtin", ""), ("asynchronous", ", asynchronous")):
        runs = [run(program, clip, mode, RunOptions()) for clip in held.clips]
        for node, said in notes.items():
            wanted, found = ([each.events(node) for each in side] for side in (held.recordings, runs))
            spikes = [sum(each.count for each in side) for side in (found, wanted)]
            said[f"F1 held out{name}"] = f"{agreement(wanted, found):.3f}"
            said[f"counts held out{name}"] = f"{spikes[0] / max(spikes[1], 1):.2f}"
    return notes


def poor(losses: tuple[Loss, ...]) -> Iterator[Finding]:
    """A warning for every population that does not keep its spikes."""
    for loss in losses:
        said = {key: value for key, value in loss.notes.items() if "held out" in key}
        if any(float(value) < POOR for key, value in said.items() if key.startswith("F1")):
            figures = ", ".join(f"{key} {value}" for key, value in said.items())
            remedy = "good for rates at best; see nrf tune, or train with the preset speck2f"
            yield Finding("approximation_keeps_spikes", "warning", loss.population, figures, remedy)
