"""Cases through chips: one verdict per case, target and runtime, as a scoreboard."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from nrf.backends import backend_of
from nrf.backends.border.chip import Target
from nrf.backends.conformance.cases import RECIPES, Case, make_case
from nrf.backends.conformance.ladder import conform
from nrf.backends.conformance.report import Report, Verdict, worst
from nrf.errors import InputError
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


def run_case(case: Case, target: Target, runtimes: Sequence[str] | None = None) -> Report:
    """The report of one case; its own input serves to choose scales, as a user's data would.

    >>> run_case(make_case("conv2d"), load_target("loihi2")).verdict
    'pass'
    """
    frames = [case.clip.frames]
    return conform(
        case.graph, target, [case.clip], runtimes=runtimes, calibration=frames, tolerances=case.tolerances
    )


def refusal(case: Case, target: Target) -> str | None:
    """Why the chip cannot hold the case at all, or None; that is its limit, not a failure."""
    found = errors(backend_of(target).check(case.graph, target))
    return str(found[0]) if found else None


def results(name: str, target: Target, runtimes: Sequence[str] | None = None) -> list[Result]:
    """How one case goes on all runtimes of a target, absent ones included."""
    case = make_case(name)
    names = list(runtimes or backend_of(target).RUNTIMES)
    if reason := refusal(case, target):
        return [Result(name, target.name, runtime, "not applicable", reason) for runtime in names]
    report = run_case(case, target, runtimes)
    found = []
    for run in sorted(report.runs, key=lambda run: names.index(run.runtime)):
        checks = [check for check in report.checks if check.runtime == run.runtime]
        failed = [c for c in checks if c.verdict == "fail"]
        reason = "; ".join(c.reason or f"{c.rung} {c.node} {c.figure} {c.value:.4g}" for c in failed)
        verdict = worst(check.verdict for check in checks)
        if verdict == "not applicable" and not run.reason:  # it ran, but nothing was judged
            reason = next(c.reason for c in reversed(checks) if "no tolerance" in c.reason)
        versions = run.provenance.versions if run.provenance else {}
        found.append(
            Result(
                name,
                target.name,
                run.runtime,
                verdict,
                reason or run.reason,
                ", ".join(f"{key} {value}" for key, value in versions.items()),
            )
        )
    return found


def run_suite(
    targets: Sequence[Target],
    names: Sequence[str] | None = None,
    runtimes: Sequence[str] | None = None,
    jobs: int = 1,
) -> list[Result]:
    """All cases, or those named, on all targets."""
    for name in names or ():
        if name not in RECIPES:
            raise InputError(f"unknown case '{name}'; known: {', '.join(RECIPES)}")
    known = {name for target in targets for name in backend_of(target).RUNTIMES}
    for name in runtimes or ():
        if name not in known:
            raise InputError(f"unknown runtime '{name}'; known: {', '.join(sorted(known))}")
    work = (
        delayed(results)(name, target, chosen)
        for name in (names or RECIPES)
        for target in targets
        if (chosen := _those_of(target, runtimes)) != []
    )
    return [result for some in Parallel(n_jobs=jobs)(work) for result in some]


def _those_of(target: Target, runtimes: Sequence[str] | None) -> list[str] | None:
    """The named runtimes that this target has; None for all of them."""
    if runtimes is None:
        return None
    return [name for name in runtimes if name in backend_of(target).RUNTIMES]


def scoreboard(found: Sequence[Result]) -> str:
    """Markdown: targets and runtimes across, cases down, then what the dashes and failures mean."""
    columns = list(dict.fromkeys((result.target, result.runtime) for result in found))
    table = {(r.case, r.target, r.runtime): r for r in found}
    names = list(dict.fromkeys(result.case for result in found))
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
    ran = {(r.target, r.runtime): r.version for r in found if r.version}
    lines += ["", "Ran on: " + "; ".join(f"{t} {r} ({version})" for (t, r), version in ran.items()) + ".", ""]
    for verdict, title in (("fail", "Failed"), ("not applicable", "Not applicable")):
        reasons: dict[tuple[str, str], list[str]] = {}
        for result in found:
            if result.verdict == verdict:
                reasons.setdefault((result.target, result.reason), []).append(
                    result.case if result.version else f"{result.case} ({result.runtime})"
                )
        if reasons:
            lines += [f"{title}:", ""]
            lines += [f"- {t}, {_some(who)}: {why}" for (t, why), who in reasons.items()] + [""]
    return "\n".join(lines)


def _some(names: list[str]) -> str:
    """Names without repeats; many are counted."""
    cases = list(dict.fromkeys(name.split(" ")[0] for name in names))
    return f"{len(cases)} cases" if len(cases) > 8 else ", ".join(cases)


INTRODUCTION = """# Conformance

Does a model still do the same thing on the chip? The ladder answers node by node:

- **L0** bit-exact: each runtime against `builtin`, spikes and membranes identical.
- **L1** taught: every node is fed the reference's spikes, so that its own error shows.
- **L2** free: spikes after removing the declared latency, counts, and the lag that fits best.
- **L3** task: coordinates against the reference and against the truth, in pixels.

```
nrf conform model.nir --target loihi2            all runtimes that are here; exit code 1 if anything fails
nrf conform model.nir --target speck2f --runtime sinabs --input clips/ --jobs 4 -o report
nrf conform --cases                              every case on every chip
pytest tests/conformance --target loihi2 --runtime lava
pytest tests/conformance --hardware -m "speck2f and chip"
```

Tolerances are in `hw_configs/<target>.toml`; `[tolerances.L1_on_grid]` and its like ask more of graphs that
were exported on the chip's own numbers, `[tolerances.L2_asynchronous]` replaces a section for runtimes whose
spikes depend on the order of events. `report.json` has a versioned schema; `report.html` needs nothing else:

![The report of a trained model on Loihi 2](conformance.png)

## Scoreboard

Every case is a small graph with an input, made by code in `backends/conformance/`; `nrf conform --write-cases
FOLDER` writes them as files. A case passes where every rung that applies is within tolerance. A dash is not
applicable; the reasons are below the table. Written by `nrf conform --cases --scoreboard docs/conformance.md`
from real runs only; do not edit.

"""


def write_scoreboard(path: str | Path, found: Sequence[Result]) -> None:
    """Write the scoreboard as a page of the documentation."""
    with atomic_write(path) as part:
        part.write_text(INTRODUCTION + scoreboard(found), encoding="utf-8")
