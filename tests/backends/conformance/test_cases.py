"""Every case on every runtime of every chip that is here; see conftest.py for the options."""

import os

import numpy as np
import pytest

from nrf.backends import reference
from nrf.backends.border import backend_of, load_chip
from nrf.backends.conformance.cases import RECIPES, all_cases, make_case, read_case, write_cases
from nrf.backends.conformance.suite import refusal, run_case, run_suite, scoreboard, write_scoreboard
from nrf.errors import InputError


@pytest.mark.parametrize("name", RECIPES)
def test_case(name: str, place: tuple[str, str], request: pytest.FixtureRequest) -> None:
    target, runtime = load_chip(place[0]), place[1]
    case = make_case(name)
    if reason := refusal(case, target):
        pytest.skip(f"not applicable: {reason}")
    if reason := backend_of(target).runtimes[runtime].absent():
        asked = getattr(request.config.option, "runtime", None) or os.environ.get("CI") == "true"
        (pytest.fail if asked else pytest.skip)(f"{runtime} is absent: {reason}")
    report = run_case(case, target, [runtime])
    if report.verdict == "not applicable":
        pytest.skip(f"not applicable: {'; '.join(dict.fromkeys(check.reason for check in report.checks))}")
    assert report.verdict == "pass", "\n".join(map(str, report.failures))


def test_every_case_makes_its_neurons_do_something():
    for case in all_cases():
        recording = reference.run(case.graph, case.clip.frames)
        for node in recording.nodes:
            spikes = recording.spikes.get(node)
            active = spikes.n.sum() if spikes is not None else np.abs(recording.membrane(node)).max()
            assert active > 3 if spikes is not None else active > 0, (case.name, node)


def test_cases_are_the_same_every_time():
    one, two = make_case("two_branches"), make_case("two_branches")
    assert one.graph.checksum == two.graph.checksum and np.array_equal(one.clip.frames, two.clip.frames)


def test_a_folder_of_cases_gives_the_same_cases_back(tmp_path):
    write_cases(tmp_path)
    for case in all_cases():
        read = read_case(tmp_path / case.name)
        assert (read.name, read.about, read.tolerances) == (case.name, case.about, case.tolerances)
        assert read.graph.contract == case.graph.contract
        assert np.array_equal(read.clip.frames, case.clip.frames)
        one, two = (reference.run(c.graph, c.clip.frames) for c in (case, read))
        for node in one.spikes:
            assert np.array_equal(one.dense(node), two.dense(node)), (case.name, node)


def test_a_folder_that_is_no_case_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"case\.json"):
        read_case(tmp_path)


def test_the_scoreboard_has_a_column_per_runtime_and_a_reason_per_dash(mirror, tmp_path):
    found = run_suite([mirror], ["linear", "conv1d"])
    text = scoreboard(found)
    names = ("builtin", "same", "noise", "shaky", "crash", "blind", "gone")
    assert "| case | " + " | ".join(f"mirror {name}" for name in names) + " |" in text
    marks = ("pass", "pass", "**fail**", "**fail**", "**fail**", "pass", "–")
    assert "| linear | " + " | ".join(marks) + " | Linear: rows and columns exchanged |" in text
    assert "the simulator has died" in text
    assert "no board is connected; run: plug one in" in text
    write_scoreboard(tmp_path / "board.md", found)
    assert (tmp_path / "board.md").read_text().endswith(text)


def test_an_unknown_case_is_named(mirror):
    with pytest.raises(InputError, match="unknown case 'nosuch'; known are conv2d, "):
        run_suite([mirror], ["nosuch"])
