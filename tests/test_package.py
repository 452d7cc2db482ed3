"""The package as a user gets it: a wheel that is complete, quick to start, clear when something is wrong."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nir
import numpy as np
import pytest

from nrf.backends.border.program import read_program

ROOT = Path(__file__).parents[1]
NRF = str(Path(sys.executable).with_name("nrf"))
COMMANDS = ("demo", "data", "train", "export", "check", "lower", "run", "conform", "doctor", "setup")


def nrf(*arguments: str, program: str = NRF, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("nrf", "export", "backends", "hw_configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder / "dist", folder], check=True)
    return next((folder / "dist").glob("nrf-*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The `nrf` program of an environment with the wheel, and no source tree in sight.

    To be quick it borrows the third-party packages of this environment, through a path file (path files
    there, such as the one of an editable install, are then not followed).
    """
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--force-reinstall", "--no-index", wheel], check=True)
    return str(folder / "bin" / "nrf")


def test_every_source_file_and_resource_is_in_the_wheel(wheel: Path) -> None:
    sources = wheel.parents[1]
    shipped = set(zipfile.ZipFile(wheel).namelist())
    for folder, place in (
        ("nrf", "nrf"),
        ("export", "nrf/export"),
        ("backends", "nrf/backends"),
        ("hw_configs", "nrf/hw_configs"),
    ):
        for path in (sources / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{place}/{path.relative_to(sources / folder)}" in shipped


def test_the_wheel_runs_without_the_sources(installed: str, tmp_path: Path) -> None:
    python = str(Path(installed).with_name("python"))
    code = "import nrf, nrf.export, nrf.backends; print(nrf.__file__, nrf.backends.__file__)"
    answer = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(str(Path(installed).parents[1]) in path for path in answer.stdout.split())
    assert nrf("--help", program=installed, cwd=tmp_path).returncode == 0
    answer = nrf("doctor", "--json", program=installed, cwd=tmp_path)
    assert {"main", "vendor", "chip"} == {item["group"] for item in json.loads(answer.stdout)}
    assert answer.returncode == 0


def test_the_wheel_lowers_a_graph(installed: str, tmp_path: Path) -> None:
    nir.write(
        tmp_path / "model.nir",
        nir.NIRGraph.from_list(
            nir.Input({"input": np.array([2])}),
            nir.Affine(np.array([[0.5, 1.0], [-0.25, 2.0]]), np.zeros(2)),
            nir.LIF(tau=np.full(2, 5e-3), r=np.ones(2), v_leak=np.zeros(2), v_threshold=np.ones(2)),
            nir.Output({"output": np.array([2])}),
        ),
    )
    contract = ["--dt", "1e-3", "--reset", "zero", "--fire", "gt", "--delay", "0"]
    call = ["lower", "model.nir", "--target", "loihi2", "--out", "model.loihi2", *contract]
    answer = nrf(*call, program=installed, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    header, arrays = read_program(tmp_path / "model.loihi2")
    assert header["program"]["target"] == "loihi2"
    assert header["checksum"] in answer.stdout
    assert any(array.dtype.kind == "i" for array in arrays.values())


def test_resources_are_found_in_a_zip(wheel: Path, tmp_path: Path) -> None:
    code = """
import nrf, nrf.training.presets
from importlib import resources
from nrf.backends.border import chip_names
from nrf.config import parse_toml_of
from nrf.backends.vendors.environment import VENDORS, _requirements
assert ".whl" in nrf.__file__
files = [resources.files("nrf.hw_configs") / f"{name}.toml" for name in chip_names()]
print(*[parse_toml_of(file.read_text(), file.name)["name"] for file in files])  # numba cannot run from a zip
print(*[len(_requirements(vendor)) for vendor in VENDORS])
"""
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    command = [sys.executable, "-c", code]
    answer = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    targets = [path.stem for path in sorted((ROOT / "hw_configs").glob("*.toml"))]
    assert answer.stdout.splitlines()[0].split() == targets


def test_help_lists_every_command() -> None:
    answer = nrf("--help")
    assert answer.returncode == 0
    for command in COMMANDS:
        assert f" {command} " in answer.stdout


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, nrf.cli; print(*sorted(name for name in sys.modules if '.' not in name))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "norse", "nir", "nirtorch", "numba", "scipy", "h5py", "numpy"}
    assert not heavy & set(answer.stdout.split())


@pytest.mark.parametrize("call", [["nonsense"], ["setup"], ["setup", "nonsense"], ["doctor", "--nonsense"]])
def test_a_wrong_call_is_one_line_and_code_2(call: list[str]) -> None:
    answer = nrf(*call)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: ")
    assert len(answer.stderr.splitlines()) == 1


def test_debug_shows_the_traceback() -> None:
    answer = nrf("setup", "nonsense", "--debug")
    assert answer.returncode == 2
    assert "Traceback" in answer.stderr


def test_a_pipe_that_closes_early_is_no_error() -> None:
    answer = subprocess.run(
        f"{NRF} --help | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert answer.stderr == ""
