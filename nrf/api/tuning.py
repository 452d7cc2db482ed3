"""A graph trained to do on a chip what it does in float."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from nrf.api.calls import PathLike, as_chip, keywords_checked, samples_for
from nrf.api.files import as_graph
from nrf.backends.border import Chip
from nrf.backends.conformance.clips import made_clips
from nrf.backends.conformance.golden import read_golden
from nrf.backends.reference import check_device
from nrf.backends.tuning import Options, Tuned
from nrf.backends.tuning import tune as run_tune
from nrf.errors import InputError
from nrf.events import ClipSource, Sample
from nrf.events.clips import Label
from nrf.export import Graph, write_graph


@keywords_checked
def tune(
    graph: Graph | PathLike,
    chip: str | Chip,
    clips: int | PathLike | Iterable[ClipSource] = 320,
    *,
    golden: Sequence[PathLike] = (),
    labels: Sequence[Label] | PathLike | None = None,
    out: PathLike | None = None,
    iterations: int = Options.iterations,
    seed: int = 0,
    device: str = "cpu",
    bin: float | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """A graph that does on a chip's own neuron what the float reference does, learnt without labels.

    `clips` are as for `conform`, or how many to generate; they are split into those to train on, those held
    back to decide on, and those of the table. `golden` recordings (`nrf.conform`) are clips of their own with
    another teacher than the reference. `labels` are only reported. With `out` the result is written there,
    and a run that was killed goes on from `<out>.state`.

    >>> tune("model.nir", "speck2f", ["clips"], out="tuned.nir").gained  # doctest: +SKIP
    True
    """
    graph, chip = as_graph(graph), as_chip(chip)
    check_device(device)
    if out is not None and not Path(out).parent.is_dir():  # not after minutes of work
        raise InputError(f"{out}: folder {Path(out).parent} does not exist; create it first")
    if golden:
        if not isinstance(clips, int) or labels is not None:
            raise InputError("golden recordings bring their own clips; leave out the others, and labels")
        theirs = [read_golden(Path(path), graph) for path in golden]
        played = [Sample(Path(path).name, it.frames) for path, it in zip(golden, theirs, strict=True)]
    elif isinstance(clips, int):
        theirs, played = [], list[Sample](made_clips(graph, clips))
    else:
        theirs, played = [], list(samples_for(graph, clips, bin, labels))
    tuned = run_tune(
        graph,
        chip,
        played,
        Options(iterations=iterations, seed=seed, device=device),
        golden=[it.recording for it in theirs],
        state=None if out is None else Path(f"{out}.state"),
        progress=progress,
    )
    if out is not None:
        if tuned.gained:  # so that `conform` can compare with it
            write_graph(beside(out), graph)
        write_graph(out, tuned.graph)
        Path(f"{out}.state").unlink(missing_ok=True)
    return tuned


def beside(path: PathLike) -> Path:
    """Where `tune` leaves the original of a tuned graph."""
    return Path(path).with_suffix(".original.nir")
