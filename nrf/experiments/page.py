"""The results as one HTML file that needs nothing else, and as JSON."""

import base64
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from nrf.experiments.design import arms
from nrf.experiments.figures import FIGURES
from nrf.experiments.results import Claim, claims, gains, table
from nrf.experiments.study import PARTS, Study
from nrf.files import atomic_write

STYLE = """body{font:15px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0;font-size:13px}img{max-width:100%}
td,th{border-bottom:1px solid #ddd;padding:.2rem .6rem;text-align:right}
td:first-child,th:first-child{text-align:left}.holds{color:#1a7f37}.not{color:#b42318}"""
COLUMNS = ("error", "curve_area", "half_way", "unevenness", "drift")
TITLES = ("error, px", "curve, px", "steps to half", "unevenness", "drift")


def summary(study: Study) -> dict[str, Any]:
    """Everything the page shows, in plain values."""
    return {
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
            "percent": c.effect and round(c.effect.percent, 1),
        }
        for c in claim.comparisons
    ]
    return {"claim": claim.text, "verdict": claim.verdict, "comparisons": rows}


def arm_cells(row: dict[str, Any]) -> list[str]:
    """A row of the table of arms as text."""
    name = f"{row['model']} {row['space']}/{row['time']}" + (" +norm" if row["norm"] else "")
    figures = [f"{row[c][0]:.3g} ± {row[c][1]:.2g}" if c in row else "" for c in COLUMNS]
    return [row["dataset"], name, str(row["seeds"]), f"{row['rate']:g}", f"{row['gain']:g}", *figures]


ARM_TITLES = ("dataset", "arm (space/time)", "seeds", "rate", "gain", *TITLES)


def claim_cells(comparison: dict[str, Any]) -> list[str]:
    """A comparison as text."""
    if comparison["d"] is None:
        return [comparison["comparison"], "open", "", ""]
    low, high = comparison["interval"]
    d, percent = comparison["d"], comparison["percent"]
    return [comparison["comparison"], f"{d:.2f}", f"[{low:.2f}, {high:.2f}]", f"{percent:+.0f} %"]


def write_page(study: Study, out: Path) -> Path:
    """results.json and results.html beside the runs; figures that are in OUT/figures go into the page."""
    data = summary(study)
    with atomic_write(out / "results.json") as part:
        part.write_text(json.dumps(data, indent=1) + "\n")
    parts = [
        f"<h1>The paper's experiments</h1><p>{data['runs']} runs, {data['cpu_hours']} CPU-hours. Errors are "
        "means and deviations over seeds, in pixels of the sensor, on clips that no training saw; less is "
        "better. d is Cohen's, with its exact 95 % interval; negative where the first arm is better.</p>"
    ]
    parts += ["<h2>Arms</h2>", html_table(ARM_TITLES, [arm_cells(row) for row in data["table"]])]
    for claim in data["claims"]:
        colour = {"holds": "holds", "does not hold": "not"}.get(claim["verdict"], "")
        parts.append(f"<h2>{escape(claim['claim'])}: <span class='{colour}'>{claim['verdict']}</span></h2>")
        rows = [claim_cells(comparison) for comparison in claim["comparisons"]]
        parts.append(html_table(("comparison", "d", "95 % interval", "difference"), rows))
    parts.append("<h2>Confound, gain: RF and uniform at equal rate and gain (validation, tuning seed)</h2>")
    cells = [[v if isinstance(v, str) else f"{v:g}" for v in row.values()] for row in data["gains"]]
    parts.append(html_table(("model", "dataset", "rate", "gain", "RF, px", "uniform, px"), cells))
    for name, _, collect, _ in FIGURES:
        if (picture := out / "figures" / f"{name}.png").exists():
            code = base64.b64encode(picture.read_bytes()).decode()
            title = (collect.__doc__ or name).strip()
            parts.append(f"<h2>{escape(title)}</h2><img alt='{name}' src='data:image/png;base64,{code}'>")
    page = (
        f"<!doctype html><meta charset='utf-8'><title>The paper's experiments</title><style>{STYLE}</style>"
    )
    with atomic_write(out / "results.html") as part:
        part.write_text(page + "\n".join(parts), encoding="utf-8")
    return out / "results.html"


def html_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; every cell is text."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
