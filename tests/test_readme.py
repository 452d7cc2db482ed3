"""The README is true: its commands and its Python run as they stand there, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.stranger import leaky, random_frames, write_model

README = (Path(__file__).parents[1] / "README.md").read_text()
MAKEFILE = (Path(__file__).parents[1] / "Makefile").read_text()


def blocks(language: str) -> list[str]:
    """Fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    return [line.strip() for block in blocks("sh") for line in block.splitlines() if line.strip()]


def test_make_targets_exist() -> None:
    named = {line.split()[1] for line in commands() if line.startswith("make ")}
    assert named == {"demo", "test"}
    for target in named:
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of the README have run."""
    folder = tmp_path_factory.mktemp("readme")
    write_model(folder / "stranger.nir")
    frames = random_frames()
    np.savez(folder / "own.npz", input=frames, lif=leaky(folder / "stranger.nir", frames, "zero"))
    (folder / "own_clips").mkdir()
    np.savez(folder / "own_clips" / "0.npz", frames=random_frames(5))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in commands():
        if command.startswith("nrf "):
            answer = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert answer.returncode == 0, f"{command}: {answer.stdout}{answer.stderr}"
    return folder


def test_the_commands_run(folder: Path) -> None:
    for command in commands():
        for name in re.findall(r" -o (\S+)", command):
            assert (folder / name).exists(), name


def test_the_python_runs(folder: Path) -> None:
    (code,) = blocks("python")
    assert len([line for line in code.splitlines() if line and not line.startswith(("from", "import"))]) <= 5
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()
