"""The doctor: everything is looked at, nothing makes it faint, and each fault comes with a remedy."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from nrf.backends.border import chip_names
from nrf.backends.vendors import VENDORS

doctor = import_module("nrf.cli.doctor")  # the name in the package is the command


def test_every_part_is_examined() -> None:
    names = [item.name for item in doctor.examine()]
    assert names[:2] == ["python", "torch"]
    assert set(VENDORS) <= set(names)
    for target in chip_names():
        assert any(name.startswith(target) for name in names)


def test_an_absent_vendor_comes_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_CACHE", str(tmp_path))
    item = doctor._vendor("lava")
    assert (item.state, item.remedy) == ("absent", "nrf setup lava")


def test_a_vendor_that_does_not_start_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_LAVA_PYTHON", sys.executable)  # no Lava in here
    item = doctor._vendor("lava")
    assert item.state == "broken"
    assert "No module named 'lava'" in item.found
    monkeypatch.setenv("NRF_LAVA_PYTHON", str(tmp_path / "gone"))
    assert "NRF_LAVA_PYTHON" in doctor._vendor("lava").found


def test_a_broken_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "norse", None)
    assert doctor._library("norse").state == "broken"


def test_a_broken_chip_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nrf.backends.border.backend_of", lambda chip: 1 / 0)
    assert [item.state for item in doctor._chip(chip_names()[0])] == ["broken"]


def test_a_broken_part_gives_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_LAVA_PYTHON", sys.executable)
    command = [Path(sys.executable).with_name("nrf"), "doctor", "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert [item["name"] for item in json.loads(answer.stdout) if item["state"] == "broken"] == ["lava"]
