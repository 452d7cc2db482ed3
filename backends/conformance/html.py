"""The report as one HTML file that needs nothing else: no network, no other file.

Names come from graphs, so nothing of the data is ever markup: it travels as JSON with every `<` written as
`\\u003c`, and the script puts it on the page as text.
"""

import html
import json
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from nrf.backends.border import FIGURES
from nrf.backends.conformance.report import Report
from nrf.files import atomic_write


def render(report: Report) -> str:
    """The page as text."""
    data = {**report.to_json(), "view": report.view, "meanings": FIGURES}
    folder = resources.files(__package__)
    return Template((folder / "template.html").read_text()).substitute(
        title=html.escape(f"{report.verdict}: {report.graph.name} on {report.chip.name}"),
        style=(folder / "report.css").read_text(),
        script=(folder / "report.js").read_text(),
        data=as_script_data(data),
    )


def as_script_data(data: Any) -> str:
    """JSON that can stand inside a script element.

    >>> as_script_data("</script>")
    '"\\\\u003c/script>"'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False, default=str).replace("<", "\\u003c")


def write_page(path: str | Path, report: Report) -> None:
    """Write `report.html`."""
    with atomic_write(path) as part:
        part.write_text(render(report), encoding="utf-8")
