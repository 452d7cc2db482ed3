"""The whole way, with the smallest model there is."""

import html
import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import nrf
from nrf.backends.border import chip_names, load_chip
from nrf.backends.conformance.suite import load_case, run_case
from nrf.cli import app
from nrf.cli.common import report_errors
from nrf.cli.demo import Outcome, run_demo, table_rows
from nrf.errors import InputError


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Outcome], list[str]]:
    folder, said, shown = tmp_path_factory.mktemp("demo") / "demo", [], io.StringIO()
    with redirect_stderr(shown):
        outcomes = run_demo(folder, "tiny", chip_names(), said.append, own=False)
    assert "time 40/40" in shown.getvalue()  # training has shown its progress
    return folder, outcomes, said


def test_every_chip_is_tried_and_the_grid_holds_on_loihi(
    shown: tuple[Path, list[Outcome], list[str]],
) -> None:
    _, outcomes, _ = shown
    found = {outcome.target: outcome for outcome in outcomes}
    assert list(found) == chip_names()
    assert found["loihi2"].lowered == "on the grid"
    (row,) = [row for row in table_rows(outcomes) if row["chip"] == "loihi2"]
    assert float(row["spikes, worst F1"]) > 0.999
    assert row["verdict"] == "pass"


def test_lower_conform_and_the_demo_make_the_same_program(
    shown: tuple[Path, list[Outcome], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, outcomes, _ = shown
    lowered = [outcome for outcome in outcomes if outcome.lowered.endswith("the grid")]
    assert lowered
    for outcome in lowered:
        made = folder / outcome.model / outcome.target
        model, target, report = str(made / "model.nir"), outcome.target, tmp_path / f"{outcome.target}.report"
        for words in (
            ["lower", model, "--target", target, "-o", str(tmp_path / target)],
            ["conform", model, "--target", target, "--runtime", "builtin", "--clips", "1", "-o", str(report)],
        ):
            monkeypatch.setattr(sys, "argv", ["nrf", *words])
            assert report_errors(app) == 0
        programs = [nrf.load(made / "program"), nrf.load(tmp_path / target)]
        sums = {program.checksum for program in programs}  # type: ignore[union-attr]
        for path in (made / "report.json", report / "report.json"):
            sums |= {run["provenance"]["checksum"] for run in json.loads(path.read_text())["runs"]}
        assert len(sums) == 1


def test_a_chip_that_lacks_the_neurons_says_so(shown: tuple[Path, list[Outcome], list[str]]) -> None:
    _, outcomes, said = shown
    assert {outcome.target: outcome.lowered for outcome in outcomes}["speck2f"] == "approximately"
    assert any("speck2f: error" in line and "LIF" in line for line in said)


def test_a_refusal_is_no_failure_and_its_reason_is_in_the_table() -> None:
    case, chip = load_case("recurrence"), load_chip("speck2f")
    (row,) = table_rows([Outcome("model", chip.name, "refused", run_case(case, chip))])
    assert row["verdict"] == "does not fit" and "recurrent connections are not supported" in row["why"]


def test_the_page_holds_the_table_and_every_report(
    shown: tuple[Path, list[Outcome], list[str]], browser: str
) -> None:
    folder, outcomes, _ = shown
    page = folder / "report.html"
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "<iframe" not in dom
    for row in table_rows(outcomes):
        for value in row.values():
            assert f">{html.escape(value, quote=False)}<" in dom or not value
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page.read_text())[0])
    for shown, outcome in zip(data["reports"], outcomes, strict=True):
        single = json.loads((folder / "tiny" / outcome.target / "report.json").read_text())
        assert shown["checks"] == single["checks"] and shown["figures"] == single["figures"]


def test_a_demo_replaces_a_demo_but_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match="not a demo"):
        run_demo(tmp_path, "tiny", [], print)
    assert (tmp_path / "thesis.tex").exists()
