"""A chip in a package of its own: installed beside nrf, it is checked, lowered, run and proven like ours."""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nir
import numpy as np
import pytest

from benchmarks.cases import recipes
from nrf.export import Contract, canonical, write_graph
from nrf.model.readout import Readout

PACKAGE = Path(__file__).parents[3] / "examples" / "outside_chip"
COMMAND = "from nrf.cli import main; main()"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the chip's package; it borrows everything else from this one."""
    folder = tmp_path_factory.mktemp("outside")
    shutil.copytree(PACKAGE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    borrowed = sysconfig.get_path("purelib")
    (site / "borrowed.pth").write_text(f"import site; site.addsitedir({borrowed!r})\n")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", site, folder / "source"], check=True)
    return folder / "venv" / "bin" / "python"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph that finds two shapes, and a clip."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    nodes = {
        "input": nir.Input({"input": np.array([2, 8, 8])}),
        "conv1": recipes.conv(recipes.weights(rng, 3, 2, 3, 3)),
        "first": recipes.if_(3, 8, 8),
        "conv2": recipes.conv(recipes.weights(rng, 2, 3, 3, 3)),
        "second": recipes.if_(2, 8, 8),
        "output": nir.Output(None),
    }
    edges = list(zip(nodes, list(nodes)[1:], strict=False))
    contract = Contract(dt=1e-3, readout=Readout(leak=0.1))
    graph = canonical(nir.NIRGraph(nodes, edges, type_check=False), contract, "outside")
    write_graph(folder / "model.nir", graph)
    np.savez(folder / "clip.npz", frames=rng.random((40, 2, 8, 8)) < 0.1)
    return folder


def call(python: Path, folder: Path, *words: str, code: int = 0) -> str:
    """Standard output of a command that must end with a code."""
    answer = subprocess.run(
        [python, "-c", COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert answer.returncode == code, answer.stdout + answer.stderr
    return answer.stdout


def test_it_is_found_by_name_only_where_it_is_installed(python: Path, folder: Path) -> None:
    call(Path(sys.executable), folder, "check", "model.nir", "--target", "minichip", code=2)
    said = call(python, folder, "check", "model.nir", "--target", "minichip")
    assert "fits A made-up chip" in said
    code = "from nrf.cli.doctor import _chip; [print(item.name, item.found) for item in _chip('minichip')]"
    items = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    assert items.splitlines() == [
        "minichip on builtin simulation",
        "minichip on board no board was ever made",
    ]


def test_a_graph_that_it_cannot_take_is_refused_by_rule(python: Path, folder: Path) -> None:
    words = ("check", "model.nir", "--target", "minichip", "--reset", "subtract", "--json")
    answer = json.loads(call(python, folder, *words, code=1))
    assert [finding["rule"] for finding in answer["findings"]] == ["contract_is_the_chips"]


def test_a_program_is_lowered_run_and_proven(python: Path, folder: Path) -> None:
    lower = ("lower", "model.nir", "--target", "minichip", "-o", "model.minichip", "--json")
    lowered = json.loads(call(python, folder, *lower))
    assert [loss["rounding"] for loss in lowered["losses"]] == ["exact", "exact"]
    run = ("run", "model.minichip", "-i", "clip.npz", "-o", "recording.npz", "--json")
    ran = json.loads(call(python, folder, *run))
    assert ran["provenance"]["checksum"] == lowered["checksum"]
    assert ran["nodes"]["second"]["spikes"] > 10
    conform = ("conform", "model.nir", "--target", "minichip", "-i", "clip.npz", "-o", "report", "--json")
    report = json.loads(call(python, folder, *conform))
    assert report["verdict"] == "pass"
    assert {check["rung"] for check in report["checks"] if check["verdict"] == "pass"} == {"L1", "L2", "L3"}
    (figures,) = [
        entry["figures"]
        for entry in report["figures"]
        if entry["rung"] == "L3" and entry["runtime"] == "builtin"
    ]
    assert figures["px_p95"] < 1e-6
    assert "minichip" in (folder / "report" / "report.html").read_text()


def test_the_cases_run_on_it(python: Path, folder: Path) -> None:
    results = json.loads(call(python, folder, "conform", "--cases", "--target", "minichip", "--json"))
    mine = [result for result in results if result["runtime"] == "builtin"]
    assert {result["verdict"] for result in mine} == {"pass", "not applicable"}
    assert sum(result["verdict"] == "pass" for result in mine) >= 15


def test_a_key_that_the_chip_does_not_know_is_named(python: Path, folder: Path) -> None:
    text = (PACKAGE / "mini_chip" / "minichip.toml").read_text().replace("[bits]", "[bits]\nwieght = 3")
    (folder / "mine.toml").write_text(text)
    words = [python, "-c", COMMAND, "check", "model.nir", "--target", "mine.toml"]
    answer = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 2 and "mine.toml: key 'bits.wieght'" in answer.stderr
