"""Cases through chips: one verdict per case, target and runtime, as a scoreboard."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from nrf.backends.border import Chip, LowerOptions, backend_of
from nrf.backends.conformance.cases import RECIPES, Case, make_case
from nrf.backends.conformance.ladder import conform
from nrf.backends.conformance.report import Report, Verdict, worst
from nrf.errors import InputError, did_you_mean
from nrf.files import atomic_write
from nrf.findings import errors

MARKS: dict[Verdict, str] = {"pass": "pass", "fail": "**fail**", "not applicable": "–"}


@dataclass(frozen=True)
class Result:
    """How one case went on one runtime of one target."""

    case: str
    target: str
    runtime: str
    verdict: Verdict
    reason: str = ""  # what failed, or why it could not be tried
    version: str = ""  # of what ran

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary."""
        return asdict(self)


def run_case(case: Case, chip: Chip, runtimes: Sequence[str] | None = None) -> Report:
    """The report of one case; its own input serves to choose scales, as a user's data would.

    >>> run_case(make_case("conv2d"), load_chip("loihi2"), ["builtin"]).verdict
    'pass'
    """
    options = LowerOptions([case.clip.frames], "given")
    return conform(
        case.graph, chip, [case.clip], runtimes=runtimes, options=options, tolerances=case.tolerances
    )


def refusal(case: Case, chip: Chip) -> str | None:
    """Why the chip cannot hold the case at all, or None; that is its limit, not a failure."""
    findings = errors(backend_of(chip).check(case.graph, chip))
    return str(findings[0]) if findings else None


def case_results(name: str, chip: Chip, runtimes: Sequence[str] | None = None) -> list[Result]:
    """How one case goes on all runtimes of a chip, absent ones included."""
    case = make_case(name)
    names = list(runtimes or backend_of(chip).runtimes)
    if reason := refusal(case, chip):
        return [Result(name, chip.name, runtime, "not applicable", reason) for runtime in names]
    report = run_case(case, chip, runtimes)
    rows = []
    for run in sorted(report.runs, key=lambda run: names.index(run.runtime)):
        checks = [check for check in report.checks if check.runtime == run.runtime]
        failed = [c for c in checks if c.verdict == "fail"]
        reason = "; ".join(c.reason or f"{c.rung} {c.node} {c.figure} {c.value:.4g}" for c in failed)
        verdict = worst(check.verdict for check in checks)
        if verdict == "not applicable" and not run.reason:  # it ran, but nothing was judged
            reason = next(check.reason for check in checks if check.rung == "L2")
        versions = run.provenance.versions if run.provenance else {}
        rows.append(
            Result(
                name,
                chip.name,
                run.runtime,
                verdict,
                reason or run.reason,
                ", ".join(f"{key} {value}" for key, value in versions.items()),
            )
        )
    return rows


def run_suite(
    chips: Sequence[Chip],
    names: Sequence[str] | None = None,
    runtimes: Sequence[str] | None = None,
    jobs: int = 1,
) -> list[Result]:
    """All cases, or those named, on all chips."""
    for name in names or ():
        if name not in RECIPES:
            raise InputError(f"unknown case '{name}'; {did_you_mean(name, RECIPES)}")
    known = {name for chip in chips for name in backend_of(chip).runtimes}
    for name in runtimes or ():
        if name not in known:
            raise InputError(f"unknown runtime '{name}'; {did_you_mean(name, sorted(known))}")
    work = (
        delayed(case_results)(name, chip, chosen)
        for name in (names or RECIPES)
        for chip in chips
        if (chosen := _those_of(chip, runtimes)) != []
    )
    return [result for some in Parallel(n_jobs=jobs)(work) for result in some]


def _those_of(chip: Chip, runtimes: Sequence[str] | None) -> list[str] | None:
    """The named runtimes that this chip has; None for all of them."""
    if runtimes is None:
        return None
    return [name for name in runtimes if name in backend_of(chip).runtimes]


def scoreboard(results: Sequence[Result]) -> str:
    """Markdown: targets and runtimes across, cases down, then what the dashes and failures mean."""
    columns = list(dict.fromkeys((result.target, result.runtime) for result in results))
    table = {(r.case, r.target, r.runtime): r for r in results}
    names = list(dict.fromkeys(result.case for result in results))
    lines = [
        "| case | "
        + " | ".join(f"{target} {runtime}" for target, runtime in columns)
        + " | what it would catch |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for name in names:
        marks = [
            MARKS[table[name, *column].verdict] if (name, *column) in table else "" for column in columns
        ]
        lines.append(f"| {name} | " + " | ".join(marks) + f" | {RECIPES[name].about} |")
    ran = {(r.target, r.runtime): r.version for r in results if r.version}
    lines += ["", "Ran on: " + "; ".join(f"{t} {r} ({version})" for (t, r), version in ran.items()) + ".", ""]
    for verdict, title in (("fail", "Failed"), ("not applicable", "Not applicable")):
        reasons: dict[tuple[str, str], list[str]] = {}
        for result in results:
            if result.verdict == verdict:
                reasons.setdefault((result.target, result.reason), []).append(
                    result.case if result.version else f"{result.case} ({result.runtime})"
                )
        if reasons:
            lines += [f"{title}:", ""]
            lines += [f"- {t}, {_some(cases)}: {reason}" for (t, reason), cases in reasons.items()] + [""]
    return "\n".join(lines)


def _some(names: list[str]) -> str:
    """Names without repeats; many are counted."""
    cases = list(dict.fromkeys(name.split(" ")[0] for name in names))
    return f"{len(cases)} cases" if len(cases) > 8 else ", ".join(cases)


def write_scoreboard(path: str | Path, results: Sequence[Result]) -> None:
    """Write the scoreboard as a page of the documentation."""
    introduction = (resources.files(__package__) / "scoreboard.md").read_text(encoding="utf-8")
    with atomic_write(path) as part:
        part.write_text(introduction + scoreboard(results), encoding="utf-8")
