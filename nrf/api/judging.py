"""Does the chip do what the graph does, and what changed between two of anything?"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from nrf.api.calls import PathLike, as_chip, keywords_checked, samples_for
from nrf.api.files import as_graph, load, read
from nrf.api.tuning import beside
from nrf.backends import reference
from nrf.backends.border import Chip, Program, Recording, backend_of
from nrf.backends.conformance import Clip, Report, ladder
from nrf.backends.conformance.clips import made_clips, read_clips
from nrf.backends.conformance.diff import Difference, differences
from nrf.backends.conformance.golden import read_goldens
from nrf.backends.conformance.page import write_page
from nrf.backends.lowering.calibration import lower_options
from nrf.errors import InputError
from nrf.events import ClipSource, Source
from nrf.events.clips import Label
from nrf.export import Graph
from nrf.files import make_folder

Diffable = Graph | Program | Recording


@keywords_checked
def conform(
    graph: Graph | PathLike,
    chip: str | Chip,
    clips: int | PathLike | Iterable[ClipSource] = 4,
    *,
    runtimes: Sequence[str] | None = None,
    program: Program | PathLike | None = None,
    golden: PathLike | None = None,
    labels: Sequence[Label] | PathLike | None = None,
    calibrate: Sequence[Source] = (),
    repeats: int = 3,
    jobs: int = 1,
    out: PathLike | None = None,
    bin: float | None = None,
    progress: Callable[[int, int | None], None] = lambda done, of: None,
) -> Report:
    """Compare a graph on a chip with the reference; with `out`, write report.json and report.html there.

    `clips` are a file (of one clip or many) or a folder, several of them, arrays or a dataset
    (`nrf.events.from_tonic`), or how many to make: held out of the training data if the graph names it, else
    generated. `labels` are their true classes, where the files do not state them. `runtimes` are all that are
    here unless some are named.
    `repeats` is how often an asynchronous runtime plays a clip, `jobs` how many processes share the clips.
    With a `golden` recording, what another software gave, its input is played (before other clips, if some
    are named), and chip, reference and golden are compared three ways; so are chip, tuned graph and original,
    if `tune` left that beside it. `progress` hears how many clips are done, and of how many.

    >>> conform("model.nir", "loihi2", out="report").verdict  # doctest: +SKIP
    'pass'
    """
    graph, chip = as_graph(graph), as_chip(chip)
    played: list[Clip] = []
    if golden is not None:
        name = Path(golden).name
        for n, theirs in enumerate(read_goldens(Path(golden), graph)):
            label, numbered = theirs.label, f"{name} {n}" if n else name
            clip = Clip(numbered, theirs.frames, label=label, golden=theirs.recording)
            played.append(clip)
    count: int | None = len(played)
    given: Iterable[Clip] = ()
    if not isinstance(clips, int):
        samples = samples_for(graph, clips, bin, labels)
        given, count = read_clips(samples), None if samples.count is None else samples.count + len(played)
    elif labels is not None:
        raise InputError("labels belong to clips of your own; give these too")
    elif not played:
        given, count = made_clips(graph, clips), clips
    if (original := _original(graph)) is not None:
        given = (replace(c, golden=reference.run(original, c.frames, membranes=False)) for c in given)
    report = ladder.conform(
        graph,
        chip,
        chain(played, given),
        runtimes=runtimes,
        program=backend_of(chip).load(program) if isinstance(program, str | Path) else program,
        options=lower_options(graph, calibrate, width=bin),
        repeats=repeats,
        jobs=jobs,
        progress=lambda done: progress(done, count),
    )
    if out is not None:
        folder = make_folder(out)
        report.save(folder / "report.json")
        write_page(folder / "report.html", report)
    return report


def _original(graph: Graph) -> Graph | None:
    """The graph that a tuned one was made from, if it is still beside it."""
    path = beside(graph.name)
    if "tuned" not in graph.metadata or not path.is_file():
        return None
    original = read(path)
    match graph.stated("tuned"):
        case {"original": {"checksum": str(stated)}}:
            pass
        case _:
            stated = "an unnamed graph"
    if original.checksum != stated:
        raise InputError(
            f"{path}: checksum {original.checksum}, {graph.name} was tuned from {stated}; move it"
        )
    return original


@keywords_checked
def diff(a: Diffable | PathLike, b: Diffable | PathLike) -> list[Difference]:
    """What changed between two graphs, two programs or two recordings; empty where nothing did.

    >>> diff("before.nir", "after.nir")  # doctest: +SKIP
    [Difference(where='conv1', what='weight', a='...', b='...', size='3 of 144 differ, by up to 0.25')]
    """
    one, other = (load(each) if isinstance(each, str | Path) else each for each in (a, b))
    return differences(one, other)
