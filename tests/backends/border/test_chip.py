"""A chip's file is checked when it is read: every wrong tolerance is named with file and key."""

from pathlib import Path

import pytest

from nrf.backends.border import load_chip
from nrf.errors import InputError

OURS = (Path(__file__).parents[3] / "hw_configs" / "loihi2.toml").read_text()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("f2_min = 0.97", "mine.toml: tolerances.L1: unknown tolerance 'f2_min'; expected <figure>_min"),
        ("f1_least = 0.97", "mine.toml: tolerances.L1: unknown tolerance 'f1_least'"),
        ('f1_min = "high"', "mine.toml: tolerances.L1: f1_min is 'high', expected a number"),
        ("f1_min = true", "mine.toml: tolerances.L1: f1_min is True, expected a number"),
        ("f1_min = { value = 1 }", "mine.toml: tolerances.L1: f1_min is {'value': 1}, expected a number"),
        ("f1_min = 1\n[tolerances.L9]", "mine.toml: tolerances: unknown section 'L9'; expected L0 to L3"),
    ],
)
def test_a_wrong_tolerance_is_named(
    change: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(OURS.replace("f1_min = 0.97", change, 1))
    with pytest.raises(InputError) as caught:
        load_chip("mine.toml")
    assert str(caught.value).startswith(line)


def test_tolerances_that_are_no_tables_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    head, _, _ = OURS.partition("[tolerances.L1]")
    Path("mine.toml").write_text(head.replace('title = "', 'tolerances = 3\ntitle = "', 1))
    with pytest.raises(InputError, match=r"mine\.toml: tolerances is 3"):
        load_chip("mine.toml")
    Path("mine.toml").write_text(head + "[tolerances]\nL1 = 3\n")
    with pytest.raises(InputError, match=r"mine\.toml: tolerances: 'L1' is 3, expected a table"):
        load_chip("mine.toml")
