"""The page of every framework is true: its Python runs in its environment, then its commands here."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from nrf.backends.vendors.environment import python_of
from nrf.cli import app
from tests.frameworks.cases import FRAMEWORKS

PAGES = Path(__file__).parents[2] / "docs" / "frameworks"
LIVE = [
    pytest.param(name, id=name, marks=pytest.mark.needs_vendor(entry.vendor))
    for name, entry in FRAMEWORKS.items()
]


def blocks(name: str, language: str) -> list[str]:
    """Fenced blocks of a language on the page of a framework."""
    text = (PAGES / f"{name}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def test_every_framework_has_a_page() -> None:
    assert sorted(path.stem for path in PAGES.glob("*.md")) == sorted(FRAMEWORKS)
    table = (PAGES.parent / "frameworks.md").read_text()
    assert all(f"frameworks/{name}.md" in table for name in FRAMEWORKS)


@pytest.mark.parametrize("name", LIVE)
def test_from_the_model_to_the_chip(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,), (commands,) = blocks(name, "python"), blocks(name, "sh")
    (verdict,) = re.findall(r"its verdict is: (pass|fail)\.", (PAGES / f"{name}.md").read_text())
    made = subprocess.run(
        [str(python_of(FRAMEWORKS[name].vendor)), "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert made.returncode == 0, made.stderr[-2000:]
    with np.load("golden.npz") as golden:
        assert all(golden[key].sum() > 50 for key in golden.files), "too few spikes to prove anything"
    for command in commands.splitlines():
        answer = CliRunner().invoke(app, shlex.split(command)[1:])
        expected = int(verdict == "fail") if command.startswith("nrf conform") else 0
        assert answer.exit_code == expected, f"{command}: {answer.output}{answer.exception}"
        if "--golden" in command:
            assert f"--dialect {name}" in answer.output.split("golden.npz: all", 1)[1]
    assert Path("recording.npz").exists()
    assert Path("proof/report.html").exists()
