"""The results as one HTML file that needs nothing else, and as JSON."""

import base64
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from nrf.experiments.design import arms
from nrf.experiments.figures import FIGURES
from nrf.experiments.results import FIGURES as MERITS
from nrf.experiments.results import Claim, claims, drift, gains, table
from nrf.experiments.study import PARTS, Study
from nrf.files import atomic_write

STYLE = """body{font:15px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0;font-size:13px}img{max-width:100%}
td,th{border-bottom:1px solid #ddd;padding:.2rem .6rem;text-align:right}
td:first-child,th:first-child{text-align:left}"""
COLUMNS = [figure.__name__ for figure in (*MERITS, drift)]
ARM_TITLES = (
    "arm (space/time)", "dataset", "seeds", "rate", "gain",
    "error, px", "curve, px", "steps to half", "spread, px", "unevenness", "drift",
)  # fmt: skip
COMPARISON_TITLES = ("comparison", "d", "95 % interval", "difference")
GAIN_TITLES = ("model", "dataset", "rate", "gain", "RF, px", "uniform, px")
TITLE = "The paper's experiments"
ABOUT = """{runs} runs, {cpu_hours} CPU-hours. Errors are in pixels of the sensor, on clips that no
training saw; less is better. Curve is the mean validation error over the training; steps to half,
when it first was half of what guessing the centre gets (twice the training if never); spread, the
deviation over scales or velocities, and unevenness its share of the mean; drift, the mean |ln| by
which time constants moved. d is Cohen's, with its exact 95 % interval; negative where the first arm
is better."""
Table = tuple[str, Sequence[str], list[list[str]]]  # title, titles of the columns, rows


def summary(study: Study) -> dict[str, Any]:
    """Everything the page shows, in plain values."""
    winner = study.store.path.with_name("winner.json")
    return {
        "winner": json.loads(winner.read_text()) if winner.exists() else None,
        "table": table(study, [arm for part in PARTS[:3] for arm in arms(part)]),
        "claims": [_claim(claim) for claim in claims(study)],
        "gains": gains(study),
        "runs": len(study.store.results),
        "cpu_hours": round(sum(r.cpu_seconds for r in study.store.results.values()) / 3600, 2),
    }


def _claim(claim: Claim) -> dict[str, Any]:
    rows = [
        {
            "comparison": c.text,
            "d": c.effect and round(c.effect.d, 2),
            "interval": c.effect and [round(c.effect.low, 2), round(c.effect.high, 2)],
            "percent": c.effect and c.effect.percent and round(c.effect.percent, 1),
        }
        for c in claim.comparisons
    ]
    return {"claim": claim.text, "verdict": claim.verdict, "comparisons": rows}


def sections(data: dict[str, Any]) -> list[Table]:
    """The summary as tables: of all arms, one per claim, the gains, the winner; every cell is text."""
    tables: list[Table] = [
        ("Arms: means and deviations over seeds", ARM_TITLES, [_arm_cells(row) for row in data["table"]])
    ]
    for claim in data["claims"]:
        rows = [_comparison_cells(comparison) for comparison in claim["comparisons"]]
        tables.append((f"{claim['claim']}: {claim['verdict']}", COMPARISON_TITLES, rows))
    cells = [[v if isinstance(v, str) else f"{v:g}" for v in row.values()] for row in data["gains"]]
    tables.append(("RF and uniform at equal rate and gain, on validation clips", GAIN_TITLES, cells))
    if winner := data["winner"]:
        tables.append(
            ("The best LIF on a chip", ("", ""), [[key, str(value)] for key, value in winner.items()])
        )
    return tables


def _arm_cells(row: dict[str, Any]) -> list[str]:
    init = row["space"] if row["space"] == row["time"] else f"{row['space']}/{row['time']}"
    name = f"{row['model']} {init}" + (" +norm" if row["norm"] else "")
    figures = [f"{row[c][0]:.3g} ± {row[c][1]:.2g}" if c in row else "" for c in COLUMNS]
    return [name, row["dataset"], str(row["seeds"]), f"{row['rate']:g}", f"{row['gain']:g}", *figures]


def _comparison_cells(comparison: dict[str, Any]) -> list[str]:
    if comparison["d"] is None:
        return [comparison["comparison"], "open", "", ""]
    low, high = comparison["interval"]
    percent = f"{comparison['percent']:+.0f} %" if comparison["percent"] is not None else ""
    return [comparison["comparison"], f"{comparison['d']:.2f}", f"[{low:.2f}, {high:.2f}]", percent]


def write_page(study: Study, out: Path) -> Path:
    """results.json, results.md and results.html; figures that are in OUT/figures go into the page."""
    data = summary(study)
    about = ABOUT.format(**data)
    html = [f"<!doctype html><meta charset='utf-8'><title>{TITLE}</title><style>{STYLE}</style>"]
    html.append(f"<h1>{TITLE}</h1><p>{about}</p>")
    markdown = [f"# {TITLE}\n", about]
    for title, titles, rows in sections(data):
        html += [f"<h2>{escape(title)}</h2>", html_table(titles, rows)]
        lines = [titles, ["---"] * len(titles), *rows]
        markdown += [f"\n## {title}\n", *(f"| {' | '.join(cells)} |" for cells in lines)]
    for name, _, collect, _ in FIGURES:
        if (picture := out / "figures" / f"{name}.png").exists():
            code = base64.b64encode(picture.read_bytes()).decode()
            title = (collect.__doc__ or name).strip()
            html.append(f"<h2>{escape(title)}</h2><img alt='{name}' src='data:image/png;base64,{code}'>")
    for ending, text in (
        ("json", json.dumps(data, indent=1)), ("md", "\n".join(markdown)), ("html", "\n".join(html)),
    ):  # fmt: skip
        with atomic_write(out / f"results.{ending}") as part:
            part.write_text(text + "\n", encoding="utf-8")
    return out / "results.html"


def html_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; every cell is text."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{cells}</tr>' for cells in body)}</table>"
