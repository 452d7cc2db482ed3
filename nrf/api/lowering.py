"""From graph to program: what a chip says about it, what it would have to do, and its integers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nrf.api.calls import PathLike, as_chip, frames_for, keywords_checked
from nrf.api.files import as_graph
from nrf.backends.border import Chip, Program, RunOptions, WeightBits, backend_of
from nrf.backends.conformance.work import Load, busy, loads
from nrf.backends.lowering.calibration import lower_options
from nrf.errors import InputError, did_you_mean
from nrf.events import Source
from nrf.export import Graph
from nrf.export.describe import remarks
from nrf.findings import Finding, errors, refuse_errors


@keywords_checked
def check(
    graph: Graph | PathLike,
    chip: str | Chip | None = None,
    frames: Source | None = None,
    *,
    bin: float | None = None,
) -> list[Finding]:
    """All findings about a graph, and with a chip those of its rules.

    With frames also how busy the cores would be on them, where the chip has a limit; `work` counts exactly.

    >>> [finding.rule for finding in check("model.nir", "speck2f")]  # doctest: +SKIP
    ['neuron_leaks_linearly']
    """
    graph = as_graph(graph)
    if chip is None:
        if frames is not None:
            raise InputError("an input tells how busy a chip would be on it; name the chip as well")
        return remarks(graph)
    chip = as_chip(chip)
    backend = backend_of(chip)
    findings = remarks(graph) + backend.check(graph, chip)
    if frames is not None and not errors(findings):
        findings += busy(chip, work(graph, chip, frames, bin=bin), bin or graph.contract.dt)
    return findings


@keywords_checked
def work(
    graph: Graph | PathLike, chip: str | Chip, frames: Source, *, bin: float | None = None
) -> list[Load]:
    """What the chip would have to do for these frames, counted on the built-in simulator: spikes, synaptic
    operations, messages, membrane updates and peak, of every population and every core.

    >>> work("model.nir", "speck2f", "clip.npz")[0].synaptic_operations  # doctest: +SKIP
    1048576
    """
    graph, chip = as_graph(graph), as_chip(chip)
    backend = backend_of(chip)
    if backend.fan_out is None:
        raise InputError(f"{chip.name}: its package cannot count work; leave the input out")
    ready = frames_for(graph, frames, bin)
    program = backend.lower(graph, chip, lower_options(graph))
    run = backend.run(program, ready, "builtin", RunOptions(membranes=True))
    return loads(run, ready, backend.fan_out(program), program.lowered.placement)


@keywords_checked
def on_grid(graph: Graph | PathLike, chip: str | Chip) -> Graph:
    """The graph with its parameters rounded to the chip's numbers, and metadata that say so.

    The file's float semantics and the chip's integers then agree.

    >>> write_graph("model.nir", on_grid(from_checkpoint("runs/demo"), "loihi2"))  # doctest: +SKIP
    """
    graph, chip = as_graph(graph), as_chip(chip)
    backend = backend_of(chip)
    if backend.to_grid is None:
        raise InputError(f"{chip.name}: its package cannot round a graph to the chip's numbers")
    refuse_errors(backend.check(graph, chip), graph.name)
    rounded = backend.to_grid(graph, chip)
    return replace(rounded, metadata=rounded.metadata | {"grid": chip.name, "checksum": rounded.checksum})


@keywords_checked
def lower(
    graph: Graph | PathLike,
    chip: str | Chip,
    *,
    calibrate: Sequence[Source] = (),
    approximate: bool = False,
    weights: WeightBits = "auto",
    format: str = "program",
    out: PathLike | None = None,
    bin: float | None = None,
) -> Program:
    """The program of a graph for a chip; refuses a graph that the chip cannot take.

    Scales are chosen on the clips in `calibrate`, else on those that the model was trained on (if it says
    so), else on generated ones: the same program whoever asks. `approximate` also lowers what the chip can
    only approximate. `weights` of 16 bits are two synapses each where a chip has only 8; "auto" takes them
    where 8 bits lose spikes. With `out` it is written there, in our own format or in a vendor's, which may
    allow fewer numbers.

    >>> lower("model.nir", "loihi2", out="model.loihi2").checksum  # doctest: +SKIP
    '9f86d081884c7d65'
    """
    graph, chip = as_graph(graph), as_chip(chip)
    backend = backend_of(chip)
    if approximate and not backend.approximates:
        raise InputError(f"{chip.name} approximates nothing; leave out approximate")
    if format not in (formats := ["program", *backend.formats]):
        raise InputError(f"{chip.name} has no format '{format}'; {did_you_mean(format, formats)}")
    if weights not in backend.weights:
        known = " or ".join(backend.weights)
        raise InputError(f"weights is '{weights}', {chip.name} has {known}")
    options = lower_options(
        graph, calibrate, width=bin, approximate=approximate, format=format, weights=weights
    )
    program = backend.lower(graph, chip, options)
    if out is not None:
        program.save(out) if format == "program" else backend.formats[format](program, Path(out))
    return program
