"""The ladder on a mirror: equal things pass with zero error, unequal things fail, absent ones say why."""

import json
from dataclasses import replace
from itertools import pairwise

import nir
import numpy as np
import pytest
from msgspec import structs

from benchmarks.cases import recipes
from nrf.backends.border import chip_names, load_chip
from nrf.backends.conformance import Clip, compare, conform, ladder
from nrf.backends.conformance.judge import judge
from nrf.backends.conformance.page import render
from nrf.backends.conformance.report import SCHEMA, VERSION, Check, Measured
from nrf.errors import InputError
from nrf.export import Contract, Graph, canonical
from nrf.model.readout import Readout


def tracker() -> Graph:
    """A small network with a readout: convolution, neurons, convolution, leaky output."""
    rng = np.random.default_rng(0)
    nodes = {
        "input": nir.Input({"input": np.array([2, 10, 12])}),
        "conv1": recipes.conv(recipes.weights(rng, 3, 2, 3, 3)),
        "lif1": recipes.lif(3, 10, 12, decay=[1 / 2, 1 / 4, 1 / 8], threshold=0.2),
        "conv2": recipes.conv(recipes.weights(rng, 2, 3, 3, 3)),
        "li": nir.LI(np.full((2, 10, 12), 4e-3), np.ones((2, 10, 12)), np.zeros((2, 10, 12))),
        "output": nir.Output(None),
    }
    order = list(nodes)
    contract = Contract(dt=1e-3, output="membrane", readout=Readout(gain=4.0))
    edges = list(pairwise(order))
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), contract, "tracker")


def clips(count: int = 1, steps: int = 20) -> list[Clip]:
    rng = np.random.default_rng(5)
    return [
        Clip(
            f"clip {n}",
            (rng.random((steps, 2, 10, 12)) < 0.1).astype(np.float32),
            rng.random((steps, 2, 2)) * 9,
        )
        for n in range(count)
    ]


def verdicts(checks: list[Check], runtime: str) -> set[str]:
    return {check.verdict for check in checks if check.runtime == runtime}


def test_a_self_comparison_passes_with_zero_error_everywhere(mirror):
    report = conform(tracker(), mirror, clips(2), runtimes=["builtin", "same"])
    assert report.verdict == "pass" and report.first_divergence is None
    perfect = {"f1", "f1_jitter", "precision", "recall"}
    for entry in report.measured:
        for figure, value in entry.figures.items():
            if not figure.startswith("truth") and not figure.endswith("_spikes"):
                assert value == (1.0 if figure in perfect else 0.0), (entry, figure)
    assert {(c.rung, c.verdict) for c in report.checks if c.runtime == "same"} == {
        ("L0", "pass"), ("L1", "not applicable"), ("L2", "pass"), ("L3", "pass"),
    }  # fmt: skip


def test_random_output_fails_everywhere(mirror):
    report = conform(tracker(), mirror, clips(2), runtimes=["noise"])
    judged = [check for check in report.checks if check.verdict != "not applicable" and check.figure != "lag"]
    assert {(check.rung, check.node) for check in judged} == {
        ("L0", "lif1"), ("L0", "li"), ("L2", "lif1"), ("L3", "coordinates"),
    }  # fmt: skip
    assert all(check.verdict == "fail" for check in judged)


def test_an_absent_runtime_is_not_applicable_and_says_why(mirror):
    report = conform(tracker(), mirror, clips())
    (check,) = [check for check in report.checks if check.runtime == "gone"]
    assert check.verdict == "not applicable" and "plug one in" in check.reason
    assert all(check.reason for check in report.checks if check.verdict == "not applicable")


def test_naming_an_absent_or_unknown_runtime_is_an_error(mirror):
    with pytest.raises(InputError, match="'gone' cannot run here: no board"):
        conform(tracker(), mirror, clips(), runtimes=["gone"])
    with pytest.raises(InputError, match="unknown runtime 'nosuch'; known are builtin, same"):
        conform(tracker(), mirror, clips(), runtimes=["nosuch"])


def test_an_asynchronous_chip_is_held_to_counts_and_its_spread_is_reported(mirror):
    report = conform(tracker(), mirror, clips(), runtimes=["shaky"], repeats=4)
    l2 = [check for check in report.checks if check.rung == "L2" and check.verdict != "not applicable"]
    assert {check.figure for check in l2} == {"count_error"}
    (spread,) = [e.figures["spread"] for e in report.measured if e.node == "lif1" and e.rung == "L2"]
    assert 0 < spread < 1


def test_a_runtime_that_crashes_fails_and_the_others_go_on(mirror):
    report = conform(tracker(), mirror, clips(2), runtimes=["builtin", "crash"])
    (check,) = report.failures
    assert check.runtime == "crash" and "has died" in check.reason
    assert "pass" in verdicts(report.checks, "builtin")


def test_a_node_that_a_runtime_does_not_record_is_named(mirror):
    report = conform(tracker(), mirror, clips(), runtimes=["blind"])
    left_out = [c for c in report.checks if c.rung == "L2" and "did not record" in c.reason]
    assert [check.node for check in left_out] == ["lif1"]
    assert [c.verdict for c in report.checks if c.rung == "L3"] == ["pass", "pass"]


def test_an_early_chip_is_compared_on_the_reference_clock():
    path = np.cumsum(np.random.default_rng(0).normal(size=(12, 2, 2)), axis=0)
    late = np.concatenate([np.zeros((3, 2, 2)), path[:-3]])
    assert compare.distances(path, late, 3).max() == 0
    assert compare.distances(late, path, -3).max() == 0


def test_a_program_of_another_chip_is_refused(mirror):
    class Foreign:
        target = "elsewhere"

    with pytest.raises(InputError, match="for elsewhere, not for mirror"):
        conform(tracker(), mirror, clips(), program=Foreign())


def test_a_clip_shorter_than_the_latency_is_refused():
    with pytest.raises(InputError, match=r"clip 'clip 0' has 2 steps, loihi2 answers 2 steps late"):
        conform(tracker(), load_chip("loihi2"), clips(1, 2), runtimes=["builtin"])


def test_a_silent_node_proves_nothing(mirror):
    silence = [Clip("silence", np.zeros((9, 2, 10, 12), np.float32))]
    report = conform(tracker(), mirror, silence, runtimes=["builtin"])
    spikes = [check for check in report.checks if check.node == "lif1" and check.figure != "membrane"]
    assert len(spikes) == 2 and all(c.verdict == "no verdict" and "no spikes" in c.reason for c in spikes)
    assert report.verdict == "no verdict" and report.doubts == ["'lif1' never fires on this input"]
    assert "no verdict ('lif1' never fires on this input)" in report.summary


def test_a_failure_is_a_failure_on_silence_too(mirror):
    silence = [Clip("silence", np.zeros((9, 2, 10, 12), np.float32))]
    report = conform(tracker(), mirror, silence, runtimes=["builtin", "noise"])
    assert report.verdict == "fail" and report.doubts == []
    assert "no verdict" in {check.verdict for check in report.checks if check.runtime == "builtin"}


def test_an_input_that_we_made_up_gives_no_verdict_and_asks_for_one(mirror):
    made_up = [replace(clip, made_up=True) for clip in clips()]
    report = conform(tracker(), mirror, made_up, runtimes=["builtin"])
    assert report.verdict == "no verdict" and "--input" in report.summary
    assert verdicts(report.checks, "builtin") == {"pass", "not applicable"}
    assert report.to_json()["clips"][0]["made_up"] is True
    assert conform(tracker(), mirror, made_up, runtimes=["noise"]).verdict == "fail"


def test_a_figure_comes_with_its_size_and_is_never_rounded_to_1(mirror):
    entry = Measured("builtin", "L2", "lif1", {
        "f1": 0.99997, "spikes_differ": 3.0, "reference_spikes": 61203.0, "candidate_spikes": 61202.0,
    })  # fmt: skip
    (check,) = judge(entry, {"f1_min": 0.9})
    assert check.verdict == "pass" and check.shown == "0.99997 (3 of 61,204 spikes differ)"
    report = conform(tracker(), mirror, clips(), runtimes=["builtin"])
    assert {row[4] for row in report.rows if row[3] == "f1"} == {"1"}


def test_jobs_do_not_change_the_figures(mirror):
    alone = conform(tracker(), mirror, clips(3), runtimes=["builtin"])
    # Threads, since the mirror exists in this process only.
    import joblib

    with joblib.parallel_config("threading"):
        shared = conform(tracker(), mirror, clips(3), runtimes=["builtin"], jobs=2)
    assert [e.figures for e in alone.measured] == [e.figures for e in shared.measured]


def test_a_graph_on_the_chips_grid_is_held_to_tighter_tolerances(mirror):
    tight = structs.replace(
        mirror, tolerances={"L2": {"f1_min": 0.5, "count_error_max": 1.0}, "L2_on_grid": {"f1_min": 1.0}}
    )
    graph = tracker()
    loose = conform(graph, tight, clips(), runtimes=["noise"]).tolerances["L2"]
    assert loose == {"f1_min": 0.5, "count_error_max": 1.0}
    on_grid = replace(graph, metadata={"grid": "mirror"})
    assert conform(on_grid, tight, clips(), runtimes=["noise"]).tolerances["L2"] == loose | {"f1_min": 1.0}


def test_an_unknown_tolerance_is_named(mirror):
    with pytest.raises(InputError, match=r"mirror: tolerances\.L2: unknown tolerance 'nonsense_max'"):
        conform(tracker(), mirror, clips(), runtimes=["builtin"], tolerances={"L2": {"nonsense_max": 1.0}})


def test_a_membrane_that_runs_away_fails_and_is_null_in_json(mirror):
    graph = tracker()
    steep = replace(graph, nodes={**graph.nodes, "conv2": replace(graph.nodes["conv2"])})
    steep.nodes["conv2"].weight = np.full_like(graph.nodes["conv2"].weight, 3e38)
    report = conform(steep, mirror, clips(), runtimes=["noise"])
    values = {
        c["figure"]: c["value"] for c in report.to_json()["checks"] if c["node"] == "li" and c["rung"] == "L0"
    }
    assert values == {"membrane_differ": None}
    json.dumps(report.to_json(), allow_nan=False)
    render(report)  # coordinates that are no numbers are left out of the page
    assert any(check.node == "li" and check.verdict == "fail" for check in report.checks)


def test_what_was_assumed_takes_the_verdict_away_only_where_it_decides_something(mirror):
    graph, few = tracker(), clips()
    stated = conform(graph, mirror, few, runtimes=["builtin"])
    assumed = replace(graph, origins={"reset": "assumed", "fire": "assumed", "delay": "assumed"})
    report = conform(assumed, mirror, few, runtimes=["builtin"])
    assert (stated.verdict, report.verdict) == ("pass", "no verdict")
    (check,) = [check for check in report.checks if check.rung == "contract"]
    assert "reset zero is assumed, and with subtract" in check.reason and "--dialect" in check.reason
    harmless = replace(graph, origins={"fire": "assumed", "delay": "assumed"})
    assert conform(harmless, mirror, few, runtimes=["builtin"]).verdict == "pass"


def test_the_json_keeps_its_keys(mirror, tmp_path):
    report = conform(tracker(), mirror, clips())
    report.save(tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text())
    assert (read["schema"], read["version"]) == (SCHEMA, VERSION) == ("nrf.conformance.report", 1)
    assert list(read) == [
        "schema", "version", "verdict", "summary", "sentence", "refusal", "doubts", "model", "target",
        "findings", "runs", "clips", "checks", "figures", "first_divergence", "work", "provenance",
    ]  # fmt: skip
    assert set(read["checks"][0]) == {
        "runtime", "rung", "node", "figure", "value", "tolerance", "verdict", "reason",
    }  # fmt: skip
    assert set(read["first_divergence"]["divergence"]) == {
        "node", "step", "neuron", "spikes", "membranes", "clip",
    }  # fmt: skip
    assert {run["runtime"]: run["available"] for run in read["runs"]}["gone"] is False


def test_a_dask_cluster_shares_the_clips_without_new_code():
    import joblib
    from distributed import Client, LocalCluster

    target = load_chip(chip_names()[0])
    alone = conform(tracker(), target, clips(3), runtimes=["builtin"])
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster):
        before = cluster.scheduler.transition_counter
        with joblib.parallel_config("dask"):
            shared = conform(tracker(), target, clips(3), runtimes=["builtin"], jobs=-1)
        assert cluster.scheduler.transition_counter >= before + 3  # the clips really went there
    assert [entry.figures for entry in shared.measured] == [entry.figures for entry in alone.measured]
    assert shared.verdict == alone.verdict == "pass"


def test_figures_without_a_tolerance_are_reported_not_judged(mirror):
    report = conform(tracker(), mirror, clips(), runtimes=["shaky"], tolerances={"L2_asynchronous": {}})
    l2 = [check for check in report.checks if check.rung == "L2"]
    assert [check.verdict for check in l2] == ["not applicable"] and "reported, not judged" in l2[0].reason
    assert any(entry.rung == "L2" and entry.node == "lif1" for entry in report.measured)


def test_the_page_holds_as_many_clips_as_there_is_room_for(mirror, monkeypatch):
    whole = conform(tracker(), mirror, clips(7), runtimes=["builtin"])
    assert [json.loads(view)["name"] for view in whole.views] == [f"clip {n}" for n in range(7)]
    monkeypatch.setattr(ladder, "VIEWED", sum(map(len, whole.views[:3])))
    small = conform(tracker(), mirror, clips(7), runtimes=["builtin"])
    assert small.views == whole.views[:3] and len(small.clips) == 7
    assert len(render(small)) < len(render(whole))
