"""The package as a user gets it: quick to start, clear when something is wrong."""

import subprocess
import sys
from pathlib import Path

NRF = str(Path(sys.executable).with_name("nrf"))


def nrf(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NRF, *arguments], capture_output=True, text=True, check=False)


def test_help_lists_every_command() -> None:
    answer = nrf("--help")
    assert answer.returncode == 0
    for command in ("doctor", "setup"):
        assert f" {command} " in answer.stdout


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, nrf.cli; print(*sorted(name for name in sys.modules if '.' not in name))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "norse", "nir", "nirtorch", "numba", "scipy", "h5py", "numpy"}
    assert not heavy & set(answer.stdout.split())


def test_a_wrong_call_is_one_line_and_code_2() -> None:
    for call in (["nonsense"], ["setup"], ["setup", "nonsense"], ["doctor", "--nonsense"]):
        answer = nrf(*call)
        assert answer.returncode == 2
        assert answer.stderr.startswith("error: ")
        assert len(answer.stderr.splitlines()) == 1
