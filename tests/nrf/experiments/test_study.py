"""A complete small study: killed, resumed, on a cluster; the tables say what the runs say."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from nrf.cli import app
from nrf.cli.common import report_errors
from nrf.config import to_table
from nrf.errors import InputError
from nrf.experiments.design import DATASETS, SIZES, Arm, Run, arms, configuration, tuning_runs
from nrf.experiments.results import Claim, Comparison, claims, difference
from nrf.experiments.runs import Store, execute, key_of, run_missing
from nrf.experiments.statistics import Effect
from nrf.experiments.study import Study
from nrf.training.config import Config

MINI = SIZES["mini"]
COMMAND = ["reproduce", "--size", "mini", "--only", "main"]


def deciding(result):
    """All of a result that does not depend on the machine."""
    return replace(result, cpu_seconds=0.0, seconds=0.0)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The main table, killed without warning after the first runs, then resumed."""
    out = tmp_path_factory.mktemp("study")
    store = out / "runs.jsonl"
    script = "from nrf.cli import main; main()"
    words = [sys.executable, "-c", script, *COMMAND, "-o", str(out)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        end = time.monotonic() + 300
        while not (store.exists() and store.read_bytes().count(b"\n") >= 3):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    before = store.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    store.write_bytes(whole + b'{"run": {"arm": {"mod')  # as a kill in the middle of a write leaves it
    argv, sys.argv = sys.argv, ["nrf", *COMMAND, "-o", str(out)]
    try:
        assert report_errors(app) == 0
    finally:
        sys.argv = argv
    assert store.read_bytes().startswith(whole)  # nothing was done again
    return Study(MINI, Store(store))


def test_a_killed_study_goes_on_and_ends_with_all_runs_once(study):
    lines = study.store.path.read_text().splitlines()
    expected = len(arms("main")) * (2 + len(MINI.gains))
    assert len(lines) == expected == len({json.loads(line)["key"] for line in lines})
    assert all(len(study.results(arm)) == 2 for arm in arms("main"))


def test_a_run_is_a_function_of_its_configuration(study):
    stored = study.results(Arm("LIF", "rf", "rf", "temporal"))[1]
    assert deciding(execute(stored.run, MINI)) == deciding(stored)


def test_settings_are_chosen_on_validation_clips_with_a_seed_of_their_own(study):
    arm = Arm("LI", "uniform", "uniform", "spatial")
    tried = [study.find(run) for run in tuning_runs(arm, MINI)]
    assert all(result.error is None and result.by_condition == () for result in tried)
    best = min(tried, key=lambda result: result.validation)
    assert study.settings(arm) == (best.run.rate, best.run.gain)
    assert {result.run.seed for result in study.results(arm)}.isdisjoint({best.run.seed})


def test_tables_page_and_figures_are_written(study):
    out = study.store.path.parent
    results = json.loads((out / "results.json").read_text())
    assert len(results["table"]) == len(arms("main")) and results["table"][0]["seeds"] == 2
    assert {claim["verdict"] for claim in results["claims"]} <= {
        "holds",
        "partly",
        "contradicted",
        "not shown",
        "open",
    }
    page = (out / "results.html").read_text()
    assert "LIF uniform" in page and "LI rf" in (out / "results.md").read_text()
    assert "http" not in page.replace("http://www.w3.org", "")
    if (out / "figures").exists():  # matplotlib is an extra
        names = {path.stem for path in (out / "figures").glob("*.svg")}
        assert {"fields", "bank", "responses", "distributions", "learning", "time_constants"} <= names
        assert all(
            (out / "figures" / f"{name}.{kind}").stat().st_size for name in names for kind in ("png", "json")
        )
        assert page.count("<img") == len(names)


def test_work_goes_to_a_dask_cluster_and_comes_back_the_same(study, tmp_path):
    from distributed import LocalCluster

    from nrf.experiments.runs import on_cluster

    stored = [study.results(Arm(model, "rf", "rf", "temporal"))[0] for model in ("SF", "LI")]
    store = Store(tmp_path / "runs.jsonl")
    local = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with local as cluster, on_cluster(cluster.scheduler_address):
        found = dict(run_missing([result.run for result in stored], MINI, store, jobs=-1))
    assert sorted(map(str, map(deciding, found))) == sorted(map(str, map(deciding, stored)))


def test_arms_differ_in_what_they_say_and_nothing_else():
    def config(space: str, time: str) -> Config:
        return configuration(Run(Arm("LIF", space, time, "temporal"), 0, 1e-2, 20.0), MINI)

    rf, uniform, pinned = config("rf", "rf"), config("rf", "uniform"), config("rf", "pinned")
    assert replace(uniform.network, time="rf") == rf.network
    assert [block.time for block in pinned.network.blocks] == ["scales", "scales", "pinned"]
    assert (pinned.network.output.time, uniform.network.output.time) == ("pinned", "fastest")
    assert [block.space for block in config("uniform", "rf").network.blocks] == ["uniform"] * 3
    assert key_of(rf) != key_of(uniform) != key_of(replace(uniform, seed=1))
    assert key_of(replace(rf, name="other")) == key_of(rf)


def test_every_arm_has_its_clips_and_a_key_of_its_own():
    runs = [Run(arm, 0, 1e-2, 20.0) for part in ("main", "arms", "norm") for arm in arms(part)]
    assert len({key_of(configuration(run, MINI)) for run in runs}) == len(runs) == 48
    for data in DATASETS:
        shapes = configuration(next(r for r in runs if r.arm.dataset == data), SIZES["small"]).data.shapes
        assert (len(shapes.scales), len(shapes.velocities)) == {"spatial": (4, 1), "temporal": (1, 4)}[data]


def test_verdicts_follow_from_the_comparisons():
    clear, large, unclear = Effect(-1.0, -2, -0.5, -9), Effect(-3.0, -4, -2, -30), Effect(-0.5, -2, 1, -3)

    def verdict(*effects, needed=0.0):
        return Claim("", tuple(Comparison("", effect, needed) for effect in effects)).verdict

    assert verdict(clear, large) == "holds" and verdict(clear, large, needed=1.9) == "partly"
    assert Comparison("", unclear, expected="same").holds and not Comparison("", large, expected="same").holds
    assert verdict(unclear, Effect(1.0, 0.5, 2.0)) == "contradicted"
    assert verdict(unclear) == "not shown" and verdict(clear, None) == "open"
    both = difference(large, clear)
    assert both.d == -2 and both.low < -2 < both.high


def test_claims_of_an_empty_study_are_open(tmp_path):
    assert {claim.verdict for claim in claims(Study(MINI, Store(tmp_path / "runs.jsonl")))} == {"open"}


def test_a_damaged_store_is_named_with_its_line(study, tmp_path):
    path = tmp_path / "runs.jsonl"
    good = json.dumps(to_table(next(iter(study.store.results.values()))))
    path.write_text(good + "\nnot json\n")
    with pytest.raises(InputError, match=r"runs.jsonl: line 2 is not JSON"):
        Store(path)
    path.write_text(good.replace('"seed"', '"sead"') + "\n")
    with pytest.raises(InputError, match=r"runs.jsonl: line 1: .*seed"):
        Store(path)


@pytest.mark.parametrize(
    "words, text", [(("--size", "smal"), "did you mean 'small'"), (("--only", "x"), "main")]
)
def test_a_size_or_part_that_is_not_there_is_refused(words, text, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["nrf", "reproduce", "-o", str(tmp_path / "out"), *words])
    assert report_errors(app) == 2
    assert text in capsys.readouterr().err


def test_the_repository_holds_a_store_that_the_small_size_reads():
    path = Path(__file__).parents[3] / "docs" / "paper" / "runs.jsonl"
    study = Study(SIZES["small"], Store(path))
    assert study.store.results and study.find(next(iter(study.store.results.values())).run)
