"""Every case on every runtime of every chip that is here; see conftest.py for the options."""

import os

import numpy as np
import pytest

from benchmarks import make_cases
from nrf.backends import reference
from nrf.backends.border import backend_of, load_chip
from nrf.backends.conformance.cases import CASES, case_names, load_case, read_case, write_cases
from nrf.backends.conformance.suite import run_case, run_suite, scoreboard, write_scoreboard
from nrf.backends.vendors import VENDORS
from nrf.errors import InputError

SLICE = 3  # of the cases on a vendor's simulator, which takes seconds to start, unless it is asked for


@pytest.mark.parametrize("name", case_names())
def test_case(name: str, place: tuple[str, str], request: pytest.FixtureRequest) -> None:
    target, runtime = load_chip(place[0]), place[1]
    asked = getattr(request.config.option, "runtime", None)
    if runtime in VENDORS and not asked and case_names().index(name) % SLICE:
        pytest.skip(f"one case in {SLICE} on {runtime} (all with --runtime {runtime})")
    if reason := backend_of(target).runtimes[runtime].absent():
        must = asked or os.environ.get("CI") == "true"
        (pytest.fail if must else pytest.skip)(f"{runtime} is absent: {reason}")
    report = run_case(load_case(name), target, [runtime])
    if report.refusal:
        pytest.skip(f"not applicable: {report.refusal}")
    if report.verdict == "not applicable":
        pytest.skip(f"not applicable: {'; '.join(dict.fromkeys(check.reason for check in report.checks))}")
    assert report.verdict == "pass", "\n".join(map(str, report.failures))


def test_every_case_makes_its_neurons_do_something():
    for case in map(load_case, case_names()):
        recording = reference.run(case.graph, case.clip.frames)
        for node in recording.nodes:
            spikes = recording.spikes.get(node)
            active = spikes.n.sum() if spikes is not None else np.abs(recording.membrane(node)).max()
            assert active > 3 if spikes is not None else active > 0, (case.name, node)


def test_the_cases_that_ship_are_what_the_recipes_make(tmp_path):
    assert case_names() == list(make_cases.RECIPES) and len(CASES.read_bytes()) < 600_000
    for name in case_names():
        made, shipped = make_cases.make_case(name), load_case(name)
        assert (shipped.name, shipped.about, shipped.tolerances) == (name, made.about, made.tolerances)
        assert shipped.graph.checksum == made.graph.checksum
        assert shipped.graph.contract == made.graph.contract
        assert np.array_equal(shipped.clip.frames, made.clip.frames)
        one, two = (reference.run(case.graph, case.clip.frames) for case in (made, shipped))
        for node in one.spikes:
            assert np.array_equal(one.dense(node), two.dense(node)), (name, node)


def test_a_folder_of_cases_gives_the_same_cases_back(tmp_path):
    assert write_cases(tmp_path) == len(case_names())
    for name in case_names():
        read, shipped = read_case(tmp_path / name), load_case(name)
        assert (read.name, read.about, read.tolerances) == (name, shipped.about, shipped.tolerances)
        assert read.graph == shipped.graph and np.array_equal(read.clip.frames, shipped.clip.frames)


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
