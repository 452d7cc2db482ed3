"""`nrf tune`: train a graph to do on the chip what it does in float, without labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from nrf.cli.common import Json, print_json, print_table, progress_lines, say
from nrf.cli.contract import Bin, read, with_contract

if TYPE_CHECKING:
    from nrf.backends.tuning import Tuned


@with_contract
def tune(
    contract: dict[str, Any],
    model: Annotated[Path, Argument(help="A NIR graph.")],
    target: Annotated[str, Option(help="loihi2, speck2f, or a path to a .toml file.")],
    out: Annotated[Path, Option("--out", "-o", help="The tuned graph to write.")],
    input: Annotated[list[Path] | None, Option("--input", "-i", help="Clips, or folders of them.")] = None,
    clips: Annotated[int, Option(min=8, help="How many to generate where no --input is given.")] = 320,
    golden: Annotated[list[Path] | None, Option(help="Spikes of your own framework, as the teacher.")] = None,
    labels: Annotated[Path | None, Option(help="Classes of the clips, to report accuracy only.")] = None,
    iterations: Annotated[
        int, Option(min=1, help="Updates per layer; the output gets four times as many.")
    ] = 400,
    seed: Annotated[int, Option(help="Of the split and of training.")] = 0,
    device: Annotated[str, Option(help="To train on: cpu, cuda, cuda:1, mps.")] = "cpu",
    bin: Bin = None,
    json: Json = False,
) -> None:
    """Make a graph do on a chip what it does in float, where the chip has another neuron. Needs no labels.

    Prints what test clips say that nothing was chosen on. Exit code 1 if nothing was gained: then the graph
    is written as it was. A run that was killed goes on where it was if the same command is given again.
    """
    import nrf

    graph = read(model, contract)
    if not input and not golden:
        say(f"note: no --input; {clips} generated clips stand for yours, the result is as good as they are")
    with progress_lines() as show:
        tuned = nrf.tune(
            graph,
            target,
            input or clips,
            golden=golden or (),
            labels=labels,
            out=out,
            iterations=iterations,
            seed=seed,
            device=device,
            bin=bin,
            progress=show,
        )
    if json:
        rows = [{"stage": row.stage, "runtime": row.runtime} | row.figures.to_json() for row in tuned.rows]
        print_json({"gained": tuned.gained, "rows": rows, "did": tuned.did, "cpu_seconds": tuned.seconds})
    else:
        _print(tuned)
        print(out)
    raise Exit(not tuned.gained)


def _print(tuned: "Tuned") -> None:
    """One line per stage and runtime, the same layer by layer, then what was kept."""
    figures = [row.figures for row in tuned.rows]
    task = "agreement" if figures[0].pixels is None else "pixels"
    titles = ["", "runtime", task, "output ratio", "output error"]
    titles += ["accuracy"] * (figures[0].accuracy is not None)
    lines, layers = [], []
    for row in tuned.rows:
        it, who = row.figures, (row.stage, row.runtime)
        known = [it.accuracy] if it.accuracy is not None else []
        lines.append((*who, getattr(it, task), it.ratio, it.error, *known))
        layers += [(*who, name, *pair) for name, pair in it.layers.items()]
    print_table(titles, lines)
    print_table(["", "runtime", "layer", "count ratio", "F1"], layers)
    say("\n".join(tuned.summary))
