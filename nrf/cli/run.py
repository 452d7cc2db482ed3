"""`nrf run`: events through a graph or a program."""

from collections.abc import Iterator
from dataclasses import asdict
from json import dumps
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from nrf.cli.common import Json, print_json, print_table, progress_bar, say
from nrf.cli.contract import Bin, read, with_contract
from nrf.errors import InputError
from nrf.lazy import load_numba

MOST_ROWS = 40  # of a table of clips

if TYPE_CHECKING:
    from nrf.api.running import ClipResult
    from nrf.backends.border.pieces import Summary


@with_contract
def run(
    model: Annotated[Path, Argument(help="A NIR graph, or a program from `nrf lower`.")],
    input: Annotated[list[Path], Option("--input", "-i", help="Clips: .npz, event files, or folders.")],
    contract: dict[str, Any],
    out: Annotated[Path | None, Option("--out", "-o", help="The recording, or a folder; else live.")] = None,
    runtime: Annotated[str | None, Option(help="Of a program: builtin (unless said), lava, ...")] = None,
    choice: Annotated[list[str] | None, Option(help="Of an asynchronous one, such as tick_at=end.")] = None,
    target: Annotated[str | None, Option(help="A program's chip, if it is a .toml of your own.")] = None,
    device: Annotated[str | None, Option(help="Where a graph runs: cpu, cuda, cuda:1, ...")] = None,
    precision: Annotated[str | None, Option(help="Of a graph's run: float32 or float64.")] = None,
    membranes: Annotated[bool, Option("--membranes", help="Record every membrane too.")] = False,
    labels: Annotated[Path | None, Option(help="Classes of the clips, one per line, or a .npz.")] = None,
    jobs: Annotated[int, Option(help="Processes that share the clips; -1 for all cores.")] = 1,
    bin: Bin = None,
    realtime: Annotated[bool, Option("--realtime", help="No faster than the recording.")] = False,
    json: Json = False,
) -> None:
    """Run events through a graph (in float, the reference) or a program (in a chip's integers).

    Without --out the run is live: coordinates are printed as events come in. Of many clips the class of
    each is listed, and with --out every recording is kept in that folder.
    """
    import nrf
    from nrf.api.calls import refuse_unused
    from nrf.api.files import is_graph, load_program
    from nrf.backends.border import RunOptions
    from nrf.events import Samples

    load_numba()
    of_graphs: dict[str, Any] = {"device": device, "precision": precision}
    options = RunOptions(choices=dict(map(_pair, choice))) if choice else None
    asked: dict[str, Any] = {
        "runtime": runtime,
        "options": options,
        "chip": target,
        "membranes": membranes,
        **of_graphs,
    }
    graph = read(model, contract) if is_graph(model) else None
    program = None if graph else load_program(model, target)[1]
    shape = graph.shapes[graph.input] if graph else program.input_shape  # type: ignore[union-attr]
    count = Samples(input, None, shape).count
    if graph is None:
        refuse_unused("a program", **contract)
    else:
        refuse_unused("a graph", target=target, choice=choice)
    if labels or count != 1:
        refuse_unused("many clips", realtime=realtime or None)
        ran = nrf.run_many(graph or model, input, out=out, labels=labels, jobs=jobs, bin=bin, **asked)
        _print_many(ran, count, json)
        return
    if out is None:
        unused = {**of_graphs, "membranes": membranes or None}
        refuse_unused("a live run", **unused, runtime=runtime, choice=choice, bin=bin)
        for reading in nrf.stream(model, input[0], chip=target, realtime=realtime):
            pixels = reading.coordinates.tolist()
            line = f"{reading.t:9.3f} s  " + "  ".join(f"({x:6.2f}, {y:6.2f})" for x, y in pixels)
            print(dumps({"t": reading.t, "coordinates": pixels}) if json else line, flush=True)
        return
    refuse_unused("a run that is written to a file", realtime=realtime or None)
    recorded = nrf.record(graph or model, input[0], out, bin=bin, **asked)
    print_json(_summary(recorded) | {"recording": out}) if json else _print(recorded, out)


def _print_many(ran: "Iterator[ClipResult]", count: int | None, json: bool) -> None:
    """One line per clip, in JSON as it comes; then how many classes are right."""
    from nrf.events.clips import label_for

    rows: list[tuple[object, ...]] = []
    right: dict[str, list[bool]] = {}  # per output, of the clips with a label
    outputs: tuple[str, ...] = ()
    with progress_bar("clips") as progress:
        for done, clip in enumerate(ran, 1):
            progress(done, count)
            outputs = tuple(clip.classes)
            for n, (name, found) in enumerate(clip.classes.items()):
                if clip.label is not None:
                    right.setdefault(name, []).append(label_for(clip.label, n) == found)
            if json:
                print(dumps(asdict(clip), default=str), flush=True)
            else:
                label = " ".join(map(str, clip.label)) if isinstance(clip.label, tuple) else clip.label
                rows.append((clip.clip, clip.steps, clip.spikes, label, *clip.classes.values()))
    if json:
        return
    shown = rows if len(rows) <= MOST_ROWS else rows[:MOST_ROWS]
    titles = ("class",) if len(outputs) == 1 else (f"class of {name}" for name in outputs)
    print_table(("clip", "steps", "spikes", "label", *titles), shown)
    print(f"{len(rows)} clips" + (f", the first {MOST_ROWS} are listed" if len(rows) > MOST_ROWS else ""))
    for name, each in right.items():
        whose = f" of {name}" * (len(outputs) > 1)
        say(f"accuracy{whose} {sum(each) / len(each):.4g} ({sum(each)} of {len(each)})")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--choice is '{text}', expected key=value")
    return key, value


def _summary(recorded: "Summary") -> dict[str, Any]:
    """What a person wants to know first: spikes per node, what ran, where the shapes are at the end."""
    nodes: dict[str, Any] = {}
    recording = recorded.recording
    for name, shape in recording.shapes.items():
        spikes = recorded.counts.get(name)
        rate = None if spikes is None else spikes / max(recording.steps * prod(shape), 1)
        latency = recording.latency(name)
        nodes[name] = {"shape": list(shape), "spikes": spikes, "rate": rate, "latency": latency}
    outputs: dict[str, dict[str, Any]] = {}
    for name, answer in recording.answers.items():
        if name in recording.decisions:
            outputs[name] = {"class": recording.decisions[name], "scores": answer.tolist()}
        elif recording.steps:
            outputs[name] = {"coordinates": answer[-1].tolist()}  # at the last step
    origin = recording.provenance.__dict__
    return {"steps": recording.steps, "nodes": nodes, "outputs": outputs, "provenance": origin}


def _print(recorded: "Summary", out: Path) -> None:
    summary, recording = _summary(recorded), recorded.recording
    origin = recording.provenance
    titles = ("node", "shape", "spikes", "per neuron and step", "latency, steps")
    nodes = summary["nodes"].items()
    print_table(titles, [(name, "x".join(map(str, row.pop("shape"))), *row.values()) for name, row in nodes])
    where = f"{origin.target or 'float'} {origin.runtime}"
    say(f"{recording.steps} steps on {where} ({origin.device})")
    for key, count in origin.counters.items():
        say(f"{key}: {count}")
    for name, answer in summary["outputs"].items():
        whose = f"{name}: " * (len(summary["outputs"]) > 1)
        if "scores" in answer:
            say(whose + class_line(answer["scores"], answer["class"]))
        else:
            pixels = ", ".join(f"({x:.2f}, {y:.2f})" for x, y in answer["coordinates"])
            say(f"{whose}coordinates at the last step, pixels: {pixels}")
    print(out)


def class_line(scores: list[float], decision: int | None) -> str:
    """The class, its score and that of the second."""
    if decision is None:
        return f"no class: all scores are {scores[0]:g}"
    second = max((n for n in range(len(scores)) if n != decision), key=scores.__getitem__)
    return f"class {decision} (score {scores[decision]:g}; next is class {second} with {scores[second]:g})"
