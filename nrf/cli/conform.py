"""`nrf conform`: does the model still do the same thing on the chip?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from nrf.cli.common import Calibrate, Json, print_json, print_table, progress_bar, say
from nrf.cli.contract import Bin, read, with_contract
from nrf.cli.work import print_work
from nrf.errors import InputError
from nrf.files import make_folder

if TYPE_CHECKING:
    from nrf.backends.conformance.report import Measured, Report
    from nrf.backends.conformance.suite import Result

FOLDER = Path("conformance")
LARGEST_MATRIX = 12  # classes of a confusion matrix that fits a terminal
EXIT = {"fail": 1, "no verdict": 3}
ADVICE = {  # by the first rung that failed
    "L0": "two simulators of one program differ, which is a fault of ours or theirs: report it",
    "L1": "single nodes lose spikes to the chip's numbers; lower with clips of your own (--calibrate), or "
    "run nrf tune",
    "L2": "single nodes do well, but what they lose adds up from layer to layer; run nrf tune",
}


@with_contract
def conform(
    contract: dict[str, Any],
    model: Annotated[Path | None, Argument(help="A NIR graph; none with --cases.")] = None,
    target: Annotated[list[str] | None, Option(help="loihi2, speck2f, or a .toml file.")] = None,
    runtime: Annotated[list[str] | None, Option(help="Only these; else all that are present.")] = None,
    input: Annotated[list[Path] | None, Option("--input", "-i", help="Clips, or folders of them.")] = None,
    clips: Annotated[int, Option(min=1, help="How many held-out clips where no --input is given.")] = 4,
    program: Annotated[Path | None, Option(help="From `nrf lower`; else lowered here.")] = None,
    golden: Annotated[Path | None, Option(help="Spikes of your own framework to compare with too.")] = None,
    labels: Annotated[Path | None, Option(help="Classes of the clips, one per line, or a .npz.")] = None,
    calibrate: Calibrate = None,
    repeats: Annotated[int, Option(min=1, help="Runs on a runtime that is asynchronous.")] = 3,
    jobs: Annotated[int, Option(help="Processes that share clips or cases; -1 for all cores.")] = 1,
    out: Annotated[Path, Option("--out", "-o", help="Folder for report.json, report.html.")] = FOLDER,
    cases: Annotated[bool, Option("--cases", help="Run the built-in cases, not a model.")] = False,
    case: Annotated[list[str] | None, Option(help="Only these cases.")] = None,
    scoreboard: Annotated[Path | None, Option(help="With --cases: write the table here.")] = None,
    write_cases: Annotated[Path | None, Option(help="Write the cases here, and stop.")] = None,
    bin: Bin = None,
    json: Json = False,
) -> None:
    """Compare a model on a chip with the reference, node by node.

    Exit code 1 if anything fails, 3 if the input says too little for a verdict.
    """
    if write_cases:
        from nrf.backends.conformance import cases as built_in

        print(f"{write_cases}: {built_in.write_cases(write_cases)} cases")
        return
    if jobs == 0:
        raise InputError("--jobs is 0; give a number of processes, or -1 for all cores")
    from nrf.api.calls import refuse_unused

    if cases or case:
        of_models = {"input": input, "program": program, "golden": golden, "labels": labels}
        refuse_unused("--cases", model=model, calibrate=calibrate, bin=bin, **of_models, **contract)
        from nrf.backends.border import chip_names, load_chip
        from nrf.backends.conformance.report import worst
        from nrf.backends.conformance.suite import run_suite, write_scoreboard

        results = run_suite([load_chip(name) for name in target or chip_names()], case, runtime, jobs)
        if scoreboard:
            write_scoreboard(scoreboard, results)
        print_json([vars(result) for result in results]) if json else _print_results(results)
        raise Exit(EXIT.get(worst(result.verdict for result in results), 0))
    if model is None or not target or len(target) != 1:
        raise InputError("conform takes one model and one --target, or --cases; see nrf conform --help")
    refuse_unused("a model", scoreboard=scoreboard)
    import nrf

    chip = nrf.load_chip(target[0])
    graph = read(model, contract)
    with progress_bar("clips") as progress:
        report = nrf.conform(
            graph,
            chip,
            input or clips,
            runtimes=runtime,
            program=program,
            golden=golden,
            labels=labels,
            calibrate=calibrate or [],
            repeats=repeats,
            jobs=jobs,
            out=make_folder(out),
            bin=bin,
            progress=progress,
        )
    print_json(report.to_json()) if json else _print_report(report, out)
    raise Exit(EXIT.get(report.verdict, 0))


def _print_report(report: "Report", out: Path) -> None:
    from nrf.backends.conformance.choices import TITLES as DEPENDENCE
    from nrf.backends.conformance.choices import dependence
    from nrf.backends.conformance.report import TITLES

    print_table(TITLES, report.rows)
    reasons: dict[tuple[str, str], list[str]] = {}
    for check in report.checks:
        if check.value is None:
            nodes = reasons.setdefault((check.verdict, check.reason), [])
            nodes.append(f"{check.node or check.runtime} {check.rung}".strip())
    for (verdict, reason), nodes in reasons.items():
        say(f"{verdict}: {', '.join(dict.fromkeys(nodes))}: {reason}")
    for run in report.runs:
        counted = run.provenance.counters.items() if run.provenance else ()
        if words := ", ".join(f"{key.replace('_', ' ')} {count:,}" for key, count in counted if count):
            say(f"{run.runtime}: {words}")
    for entry in report.measured:
        if "clips" in entry.figures:
            _print_classes(entry, "original" if "tuned" in report.graph.metadata else "golden")
    for runtime, loads in list(report.work.items())[:1]:
        say(f"work on {runtime}, {len(report.clips)} clips:")
        print_work(loads, report.chip, len(report.clips))
    if rows := dependence(report.measured, report.graph.read_populations):
        print_table(DEPENDENCE, rows)
    if first := report.first_divergence:
        say(f"first divergence, {first.runtime}: {first.divergence}")
    say(report.summary)
    if advice := next((ADVICE[check.rung] for check in report.failures if check.rung in ADVICE), ""):
        say(f"what to do: {advice}")
    print(out / "report.html")


def _print_classes(entry: "Measured", golden: str) -> None:
    """Agreement, accuracy and margin of one runtime in a line, and its confusion matrix if that is small."""
    from nrf.backends.conformance.report import digits

    figures, against = entry.figures, golden if entry.rung == "golden" else "reference"
    agree, decided = figures["clips_agree"], figures["clips_decided"]
    itself = entry.runtime == against  # a reference agrees with itself
    words = [] if itself else [f"{agree:g} of {decided:g} decided clips agree with the {against}"]
    if "accuracy" in figures:
        words.append(f"accuracy {digits(figures['accuracy'])}")
    words.append(f"median top-2 margin {figures['margin']:.4g}")
    if figures["undecided"]:
        words.append(f"{figures['undecided']:g} without a decision")
    say(f"{entry.node}, {entry.runtime}: {', '.join(words)}")
    rows = entry.confusion.get("labels", entry.confusion.get("reference", []))
    if entry.runtime != "reference" and entry.rung != "golden" and len(rows) <= LARGEST_MATRIX:
        names = [*map(str, range(len(rows) - 1)), "none"]
        last = len(rows) - 1  # no decision
        kept = [n for n in range(len(rows)) if n < last or any(rows[n]) or any(row[n] for row in rows)]
        true = "label" if "labels" in entry.confusion else "reference"
        print_table(
            (f"{true} \\ {entry.runtime}", *(names[n] for n in kept)),
            [(names[n], *(rows[n][m] or None for m in kept)) for n in kept],
        )


def _print_results(results: "list[Result]") -> None:
    titles = ("case", "target", "runtime", "verdict", "why")
    print_table(titles, [(r.case, r.target, r.runtime, r.verdict, r.reason) for r in results])
    words = {"pass": "passed", "fail": "failed"} | {word: word for word in ("no verdict", "not applicable")}
    counts = {word: sum(r.verdict == verdict for r in results) for verdict, word in words.items()}
    print(", ".join(f"{count} {word}" for word, count in counts.items() if count or word != "no verdict"))
