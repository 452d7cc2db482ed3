"""What a comparison found: checks, figures, first divergence, and what really ran. `report.json` is its text.

The JSON has a name and a version; keys are only ever added within a version:

    schema, version, verdict, summary
    sentence    what was compared with what, on which input, where, and what was assumed
    refusal     why the chip cannot hold the model; empty where it can
    doubts      why there is no verdict; empty where there is one
    model       name, checksum, contract, origins (of its fields: file, flag, dialect, assumed), repairs,
                on_grid (of the chip's numbers), nodes [name, type, shape]
    target      name, title, tolerances (as applied)
    findings    what the chip's rules said about the graph
    runs        per runtime: device, exact, available, reason if not, provenance
    clips       name, steps, events, truth (whether true coordinates are known), made_up (by us),
                held_out (of the training data that the model names), label, and classes: what each
                runtime gave (-1 for none), per entry "classes" or "classes of <output>" of figures
    checks      runtime, rung, node, figure, value, tolerance, verdict, reason
    figures     runtime, rung, node -> every figure that was measured, the node's first divergence, and for
                classes the confusion matrices: [row][column] counts, the last of each for no decision. On a
                rung "choice key=value" against the same runtime with its defaults, see choices.py
    first_divergence   the earliest step at which any free-running candidate left the reference, or null
    work        per runtime: loads of populations and cores, costs (power, energy, latency, with source
                and status), neurobench (its names, per clip)
    provenance  versions, platform, time
"""

import html
import json
import math
import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from nrf.backends.border import Chip, Lowered, Provenance, Tolerances
from nrf.backends.conformance.classes import Matrix
from nrf.backends.conformance.compare import Divergence
from nrf.backends.conformance.work import Load, costs, neurobench
from nrf.export.graph import Graph
from nrf.files import atomic_write
from nrf.findings import Finding

SCHEMA, VERSION = "nrf.conformance.report", 1
TITLES = ("node", "runtime", "rung", "figure", "value", "tolerance", "verdict")  # of the table of checks
Verdict = Literal["pass", "fail", "no verdict", "not applicable"]
PACKAGES = ("nrf", "numpy", "scipy", "torch", "norse", "nir", "numba", "joblib")


@dataclass(frozen=True)
class Check:
    """One figure held against one tolerance."""

    runtime: str
    rung: str  # rules | input | contract | L0 | L1 | L2 | L3 | golden
    node: str  # "" for all nodes, "coordinates" or "classes" (of an output) for what the host reads
    verdict: Verdict
    reason: str = ""  # always given without a value; beside F1 and agreement, how many spikes or clips
    figure: str = ""
    value: float | None = None  # None where it could not be told
    tolerance: str = ""  # ">= 0.95", "<= 0.1", "= 0"

    @property
    def shown(self) -> str:
        """The value as text, with the number of spikes or clips behind it."""
        size = f" ({self.reason})" if self.reason else ""
        return "" if self.value is None else digits(self.value) + size

    def __str__(self) -> str:
        return f"{self.rung} {self.node} {self.figure} {self.shown}" if self.shown else self.reason


@dataclass(frozen=True)
class Measured:
    """All figures of one node on one rung."""

    runtime: str
    rung: str
    node: str
    figures: dict[str, float]
    divergence: Divergence | None = None
    confusion: dict[str, Matrix] = field(default_factory=dict)  # of classes, against "reference" and "labels"


@dataclass(frozen=True)
class Run:
    """A runtime: what it is, and what it said about itself, or why it did not run."""

    runtime: str
    device: str
    exact: bool
    reason: str = ""
    provenance: Provenance | None = None


@dataclass(frozen=True, repr=False)
class Report:
    """Reference and candidates compared."""

    graph: Graph
    chip: Chip
    checks: list[Check]
    measured: list[Measured] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    clips: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    tolerances: Tolerances = field(default_factory=dict)  # as applied, per rung
    on_grid: bool = False  # whether the graph's numbers are the chip's own
    lowered: Lowered | None = None  # placement and losses of the program
    work: dict[str, list[Load]] = field(default_factory=dict)  # per runtime, all clips together
    views: list[str] = field(default_factory=list)  # for the page only: rasters, player, as JSON

    @property
    def verdict(self) -> Verdict:
        """Fail if anything failed; no verdict if the input says too little to pass on."""
        return worst(check.verdict for check in self.checks)

    @property
    def doubts(self) -> list[str]:
        """Why there is no verdict, though nothing failed; empty where there is one."""
        if self.verdict != "no verdict":
            return []
        open_ = [check for check in self.checks if check.verdict == "no verdict"]
        silent = list(dict.fromkeys(f"'{check.node}'" for check in open_ if check.figure == "f1"))
        never = [f"{', '.join(silent)} never fire{'s' * (len(silent) == 1)} on this input"] if silent else []
        others = [check for check in open_ if check.figure != "f1"]
        reasons = (f"{check.node}: {check.reason}" if check.node else check.reason for check in others)
        return never + list(dict.fromkeys(reasons))

    @property
    def failures(self) -> list[Check]:
        """The checks that failed, in the order of the ladder and of the nodes."""
        return [check for check in self.checks if check.verdict == "fail"]

    @property
    def refusal(self) -> str:
        """Why the chip cannot hold the graph at all; empty where it can. A limit of it, not a fault."""
        return next((check.reason for check in self.checks if check.rung == "rules"), "")

    @property
    def sentence(self) -> str:
        """What was compared with what, on which input, in simulation or on a chip, and what was assumed."""
        name = Path(self.graph.name).name
        if self.refusal:
            return (
                f"{name} was held against the rules of {self.chip.title}; it breaks some, so nothing was run."
            )
        kinds = {"simulation": "in simulation", "chip": "on the chip itself"}
        ran = {kind: [r.runtime for r in self.runs if r.provenance and r.device == kind] for kind in kinds}
        where = "; ".join(f"{kinds[kind]}: {', '.join(names)}" for kind, names in ran.items() if names)
        count = f"{len(self.clips)} clip{'s' * (len(self.clips) != 1)}"
        made_up, held_out = (any(clip[key] for clip in self.clips) for key in ("made_up", "held_out"))
        source = "made up here" if made_up else "held out of its training data" if held_out else "of yours"
        assumed = ", ".join(f"{key} {getattr(self.graph.contract, key)}" for key in self.graph.assumed)
        stated = sorted({{"flag": "flags"}.get(whose, whose) for whose in self.graph.origins.values()})
        contract = (
            f"Nobody stated {assumed}: these were assumed."
            if assumed
            else f"How it steps is stated by the {' and '.join(stated or ['caller'])}; nothing was assumed."
        )
        if "tuned" in self.graph.metadata:
            contract += (
                " It was tuned for this chip: what that did to spikes and answers stands under changes."
            )
        return (
            f"What {name} computes in the numbers of {self.chip.title} ({where or 'nothing ran'}) is "
            "compared with the reference, which is our own run of the same graph in floating point, on "
            f"{count} {source}. {contract}"
        )

    @property
    def first_divergence(self) -> Measured | None:
        """The earliest step at which a free-running candidate left the reference; upstream nodes first.

        Asynchronous runtimes do not count: their spikes depend on the order of events.
        """
        exact = {run.runtime for run in self.runs if run.exact}
        free = [entry for entry in self.measured if entry.runtime in exact and entry.rung in ("L0", "L2")]
        apart = [(entry.divergence.step, n) for n, entry in enumerate(free) if entry.divergence]
        return free[min(apart)[1]] if apart else None

    @property
    def summary(self) -> str:
        """One line: what was compared, and how it went."""
        passed = sum(check.verdict == "pass" for check in self.checks)
        ran = ", ".join(run.runtime for run in self.runs if run.provenance) or "nothing"
        doubts = f" ({'; '.join(self.doubts)})" if self.doubts else ""
        text = f"{self.graph.name} on {self.chip.name} ({ran}): {self.verdict}{doubts}, "
        text += f"{passed} checks passed, {len(self.failures)} failed"
        return text + (f", first at node '{self.failures[0].node}'" if self.failures else "")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Every check that gave a figure or failed, as text under `TITLES`."""
        return [
            (c.node or "all", c.runtime, c.rung, c.figure, c.shown, c.tolerance, c.verdict)
            for c in self.checks
            if c.value is not None or c.verdict in ("fail", "no verdict")
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists; see the module's text for the keys. Infinite figures become null."""
        first = self.first_divergence
        content = {
            "schema": SCHEMA,
            "version": VERSION,
            "verdict": self.verdict,
            "summary": self.summary,
            "sentence": self.sentence,
            "refusal": self.refusal,
            "doubts": self.doubts,
            "model": {
                "name": self.graph.name,
                "checksum": self.graph.checksum,
                "contract": asdict(self.graph.contract),
                "origins": self.graph.origins,
                "repairs": list(self.graph.repairs),
                "on_grid": self.on_grid,
                "nodes": [
                    {"name": name, "type": type(node).__name__, "shape": list(self.graph.shapes[name])}
                    for name, node in self.graph.nodes.items()
                ],
            },
            "target": {"name": self.chip.name, "title": self.chip.title, "tolerances": self.tolerances},
            "findings": [asdict(finding) for finding in self.findings],
            "runs": [{**asdict(run), "available": run.provenance is not None} for run in self.runs],
            "clips": self.clips,
            "checks": [asdict(check) for check in self.checks],
            "figures": [asdict(entry) for entry in self.measured],
            "first_divergence": asdict(first) if first else None,
            "work": {name: self._work(loads) for name, loads in self.work.items()},
            "provenance": provenance(),
        }
        text = json.dumps(content, default=str)
        return dict(json.loads(text, parse_constant=lambda infinite_or_nan: None))

    def _work(self, loads: list[Load]) -> dict[str, Any]:
        return {
            "loads": [asdict(load) for load in loads],
            "costs": [asdict(cost) for cost in costs(self.chip, loads)],
            "neurobench": neurobench(loads, len(self.clips)),
        }

    def __repr__(self) -> str:
        return f"Report({self.summary})"

    def _repr_html_(self) -> str:
        """The verdict and the table, for notebooks."""
        cells = [[html.escape(text) for text in row] for row in self.rows]
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
        head = f"<tr><th>{'</th><th>'.join(TITLES)}</th></tr>"
        return f"<p>{html.escape(self.summary)}</p><table>{head}{body}</table>"

    def save(self, path: str | Path) -> None:
        """Write `report.json`."""
        with atomic_write(path) as part:
            part.write_text(json.dumps(self.to_json(), indent=1))


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """One verdict for many.

    >>> worst(["pass", "not applicable"]), worst(["pass", "no verdict"])
    ('pass', 'no verdict')
    """
    order: tuple[Verdict, ...] = ("fail", "no verdict", "pass")
    given = set(verdicts)
    return next((verdict for verdict in order if verdict in given), "not applicable")


def digits(value: float) -> str:
    """A figure in four digits, or in as many as it takes not to look like 1 where it is less.

    >>> digits(0.98765), digits(0.99997), digits(1.0)
    ('0.9877', '0.99997', '1')
    """
    short = f"{value:.4g}"
    return f"{value:.{1 - math.floor(math.log10(1 - value))}g}" if short == "1" and value < 1 else short


def provenance() -> dict[str, Any]:
    """Versions, platform and time of the comparison itself."""
    return {
        "packages": {name: version(name) for name in PACKAGES},
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
