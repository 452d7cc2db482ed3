"""Every example in a docstring does what it says; those that need files or minutes are marked +SKIP."""

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {"nrf": ROOT / "nrf", "nrf.export": ROOT / "export", "nrf.backends": ROOT / "backends"}
OTHER_ENVIRONMENTS = ("lava_worker", "sinabs_worker", "worker_main")  # without nrf


def modules() -> list[str]:
    """Names of all modules that hold an example."""
    names = []
    for package, folder in ROOMS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if ">>>" in path.read_text() and not any(word in parts for word in OTHER_ENVIRONMENTS):
                names.append(".".join((package, *(part for part in parts if part != "__init__"))))
    return names


@pytest.mark.parametrize("name", modules())
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    module = importlib.import_module(name)
    names = {"np": np, **vars(importlib.import_module("nrf.backends.border")), **vars(module)}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testmod(module, extraglobs=names, optionflags=flags)
    assert not failed, f"{failed} of {tried} examples of {name} fail, see above"
