"""Cases through chips: one verdict per case, target and runtime, as a scoreboard."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from joblib import delayed

from nrf.backends.border import Chip, LowerOptions, backend_of
from nrf.backends.conformance.cases import Case, case_names, load_case
from nrf.backends.conformance.ladder import conform
from nrf.backends.conformance.report import Report, Verdict, worst
from nrf.errors import InputError, did_you_mean
from nrf.files import atomic_write
from nrf.parallel import parallel

MARKS: dict[Verdict, str] = {"pass": "pass", "fail": "**fail**", "no verdict": "?", "not applicable": "–"}


@dataclass(frozen=True)
class Result:
    """How one case went on one runtime of one target."""

    case: str
    target: str
    runtime: str
    verdict: Verdict
    reason: str = ""  # what failed, or why it could not be tried
    version: str = ""  # of what ran


def run_case(case: Case, chip: Chip, runtimes: Sequence[str] | None = None) -> Report:
    """The report of one case; its own input serves to choose scales, as a user's data would.

    >>> run_case(load_case("conv2d"), load_chip("loihi2"), ["builtin"]).verdict
    'pass'
    """
    options = LowerOptions([case.clip.frames], "given")
    return conform(
        case.graph, chip, [case.clip], runtimes=runtimes, options=options, tolerances=case.tolerances
    )


def case_results(name: str, chip: Chip, runtimes: Sequence[str] | None = None) -> list[Result]:
    """How one case goes on all runtimes of a chip, absent ones included."""
    names = list(runtimes or backend_of(chip).runtimes)
    report = run_case(load_case(name), chip, runtimes)
    if report.refusal:
        return [Result(name, chip.name, runtime, "not applicable", report.refusal) for runtime in names]
    rows = []
    for run in sorted(report.runs, key=lambda run: names.index(run.runtime)):
        checks = [check for check in report.checks if check.runtime == run.runtime]
        verdict = worst(check.verdict for check in checks)
        reason = "; ".join(map(str, (check for check in checks if check.verdict == verdict)))
        if verdict == "pass":
            reason = ""
        elif verdict == "not applicable" and not run.reason:  # it ran, but nothing was judged
            reason = next(check.reason for check in checks if check.rung == "L2")
        versions = run.provenance.versions if run.provenance else {}
        version = ", ".join(f"{key} {value}" for key, value in versions.items())
        rows.append(Result(name, chip.name, run.runtime, verdict, reason, version))
    return rows


def run_suite(
    chips: Sequence[Chip],
    names: Sequence[str] | None = None,
    runtimes: Sequence[str] | None = None,
    jobs: int = 1,
) -> list[Result]:
    """All cases, or those named, on all chips; runtimes that a chip does not have are left out there."""
    known = {name for chip in chips for name in backend_of(chip).runtimes}
    for kind, given, all_ in (("case", names, case_names()), ("runtime", runtimes, sorted(known))):
        for name in given or ():
            if name not in all_:
                raise InputError(f"unknown {kind} '{name}'; {did_you_mean(name, all_)}")
    work = []
    for name in names or case_names():
        for chip in chips:
            chosen = runtimes and [each for each in runtimes if each in backend_of(chip).runtimes]
            if chosen != []:
                work.append(delayed(case_results)(name, chip, chosen))
    return [result for some in parallel(jobs)(work) for result in some]


def scoreboard(results: Sequence[Result]) -> str:
    """Markdown: targets and runtimes across, cases down, then what the dashes and failures mean."""
    columns = list(dict.fromkeys((result.target, result.runtime) for result in results))
    marks = {(r.case, r.target, r.runtime): MARKS[r.verdict] for r in results}
    titles = ["case", *(" ".join(column) for column in columns), "what it would catch"]
    rows = [titles, ["---"] * len(titles)]
    for name in dict.fromkeys(result.case for result in results):
        cells = [marks.get((name, *column), "") for column in columns]
        rows.append([name, *cells, load_case(name).about])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    ran = {f"{r.target} {r.runtime}": r.version for r in results if r.version}
    lines += ["", "Ran on: " + "; ".join(f"{name} ({version})" for name, version in ran.items()) + ".", ""]
    kinds = {"fail": "Failed", "no verdict": "No verdict", "not applicable": "Not applicable"}
    for verdict, title in kinds.items():
        reasons: dict[tuple[str, str], dict[str, None]] = {}  # target, reason -> cases
        for result in results:
            if result.verdict == verdict:
                reasons.setdefault((result.target, result.reason), {})[result.case] = None
        if reasons:
            lines += [f"{title}:", ""]
        for (target, reason), cases in reasons.items():
            few = f"{len(cases)} cases" if len(cases) > 8 else ", ".join(cases)
            lines.append(f"- {target}, {few}: {reason}")
        lines += [""] * bool(reasons)
    return "\n".join(lines)


def write_scoreboard(path: str | Path, results: Sequence[Result]) -> None:
    """Write the scoreboard as a page of the documentation."""
    introduction = (resources.files(__package__) / "scoreboard.md").read_text(encoding="utf-8")
    with atomic_write(path) as part:
        part.write_text(introduction + scoreboard(results), encoding="utf-8")
