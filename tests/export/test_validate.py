"""Every kind of broken graph has its own rule and message, through Python and through the command line."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import nir
import numpy as np
import pytest

from nrf.cli import app
from nrf.cli.common import report_errors
from nrf.errors import InputError
from nrf.export import Contract, read_graph, validate
from nrf.export.validate import TIMING

Change = Callable[[dict[str, nir.NIRNode], list[tuple[str, str]]], None]
ONES = np.ones(3)


def sound() -> tuple[dict[str, nir.NIRNode], list[tuple[str, str]]]:
    """A small graph with everything in it that can be broken."""
    lif = [np.full((2, 4, 4), v) for v in (1e-2, 1.0, 0.0, 1.0)]
    nodes = {
        "input": nir.Input(np.array([1, 4, 4])),
        "conv": nir.Conv2d((4, 4), np.ones((2, 1, 3, 3)), 1, 1, 1, 1, np.zeros(2)),
        "lif": nir.LIF(*lif),
        "back": nir.Scale(np.full((2, 4, 4), 0.1)),
        "flat": nir.Flatten({"input": np.array([2, 4, 4])}, 0, -1),
        "dense": nir.Affine(np.ones((3, 32)), np.zeros(3)),
        "lif2": nir.CubaLIF(1e-2 * ONES, 1e-2 * ONES, ONES, 0 * ONES, ONES),
        "output": nir.Output(np.array([3])),
    }
    edges = [("input", "conv"), ("conv", "lif"), ("lif", "back"), ("back", "lif"), ("lif", "flat")]
    return nodes, [*edges, ("flat", "dense"), ("dense", "lif2"), ("lif2", "output")]


def set_parameter(node: str, key: str, value: Any) -> Change:
    return lambda nodes, edges: setattr(nodes[node], key, value)


def put(name: str, node: nir.NIRNode, *new: tuple[str, str]) -> Change:
    def change(nodes: dict[str, nir.NIRNode], edges: list[tuple[str, str]]) -> None:
        nodes[name] = node
        edges.extend(new)

    return change


def without(name: str) -> Change:
    def change(nodes: dict[str, nir.NIRNode], edges: list[tuple[str, str]]) -> None:
        del nodes[name]
        edges[:] = [edge for edge in edges if name not in edge]

    return change


BROKEN: dict[str, tuple[Change, str, str]] = {
    "beyond single precision": (
        set_parameter("dense", "weight", np.full((3, 32), 1e39)),
        "single_precision",
        "node 'dense': weight reaches 1e+39, beyond 32-bit numbers",
    ),
    "dangling edge": (
        lambda nodes, edges: edges.append(("lif", "ghost")),
        "no_dangling_edges",
        "edge lif -> ghost: there is no node 'ghost'",
    ),
    "unreachable node": (
        put("lonely", nir.Scale(ONES), ("lonely", "lif2")),
        "reachable",
        "node 'lonely': nothing leads from the input to this node",
    ),
    "no path to the output": (
        lambda nodes, edges: edges.remove(("dense", "lif2")),
        "reachable",
        "node 'output': nothing leads from the input to this node; connect it",
    ),
    "shape mismatch": (
        set_parameter("dense", "weight", np.ones((3, 31))),
        "shapes_agree",
        "edge flat -> dense: 'flat' gives (32,), but 'dense' takes (31,)",
    ),
    "wrong number of channels": (
        set_parameter("conv", "weight", np.ones((2, 3, 3, 3))),
        "shapes_agree",
        "edge input -> conv: 'input' gives (1, 4, 4), but 'conv' takes 3 channels",
    ),
    "branches of different shape": (
        put("sum", nir.SumPool2d(*np.array([[2, 2], [2, 2], [0, 0]])), ("input", "sum"), ("lif", "sum")),
        "shapes_agree",
        "edge lif -> sum: 'lif' gives (2, 4, 4) and so (2, 2, 2), other inputs of 'sum' make it (1, 2, 2)",
    ),
    "kernel for another map": (
        set_parameter("conv", "input_shape", (5, 4)),
        "shapes_agree",
        "edge input -> conv: 'input' gives (1, 4, 4), but 'conv' says input_shape (5, 4)",
    ),
    "output of another shape": (
        put("output", nir.Output(np.array([4]))),
        "shapes_agree",
        "edge lif2 -> output: 'lif2' gives (3,), the output says (4,)",
    ),
    "not a number": (
        set_parameter("conv", "bias", np.array([0.0, np.nan])),
        "finite_parameters",
        "node 'conv': bias has 1 values that are not finite",
    ),
    "time constant of zero": (
        set_parameter("lif2", "tau_syn", 0 * ONES),
        "positive_parameters",
        "node 'lif2': tau_syn is 0, expected above 0",
    ),
    "negative threshold": (
        set_parameter("lif2", "v_threshold", -ONES),
        "positive_parameters",
        "node 'lif2': v_threshold is -1, expected above 0",
    ),
    "neuron parameters of another shape": (
        put("lif", nir.LIF(*(np.full(5, v) for v in (1e-2, 1.0, 0.0, 1.0)))),
        "shapes_agree",
        "edge conv -> lif: 'conv' gives (2, 4, 4), but 'lif' has tau of shape (5,)",
    ),
    "unknown type": (
        put("lif2", nir.NIRGraph({}, [], type_check=False)),  # replaced by name in the file below
        "known_types",
        "node 'lif2': type Quantum is not known",
    ),
    "duplicated edge": (
        lambda nodes, edges: edges.append(("conv", "lif")),
        "no_duplicated_edges",
        "edge conv -> lif: the edge is there more than once",
    ),
    "cycle without state": (
        put("loop", nir.Scale(np.full((2, 4, 4), 0.5)), ("conv", "loop"), ("loop", "loop"), ("loop", "lif")),
        "cycles_hold_state",
        "node 'loop': cycle without a neuron or delay: loop",
    ),
    "stride of zero": (
        set_parameter("conv", "stride", (0, 1)),
        "sound_kernels",
        "node 'conv': stride is (0, 1), expected 1 or more per axis",
    ),
    "bias of another length": (
        set_parameter("dense", "bias", np.zeros(2)),
        "biases_fit",
        "node 'dense': bias has shape (2,), expected (3,)",
    ),
    "two inputs": (
        put("more", nir.Input(np.array([3])), ("more", "lif2")),
        "one_input_some_outputs",
        "the graph has 2 Input nodes, expected one",
    ),
    "no output": (
        without("output"),
        "one_input_some_outputs",
        "the graph has 0 Output nodes, expected at least one",
    ),
    "delay below zero": (
        put("wait", nir.Delay(-ONES), ("dense", "wait"), ("wait", "lif2")),
        "positive_parameters",
        "node 'wait': delay is -1 s, expected 0 or more",
    ),
    "delay between two steps": (
        put("wait", nir.Delay(1.5e-3 * ONES), ("dense", "wait"), ("wait", "lif2")),
        "whole_delays",
        "node 'wait': delays are not whole steps of dt = 0.001 s (off by up to 0.5 steps)",
    ),
    "delay of next to nothing": (
        put("wait", nir.Delay(1e-7 * ONES), ("dense", "wait"), ("wait", "lif2")),
        "whole_delays",
        "node 'wait': delays are 0.0001 of a step, dt is 0.001 s; make them 0 or at least one step",
    ),
}


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["nrf", *map(str, arguments)])
    return report_errors(app)


def test_a_sound_graph_has_no_findings() -> None:
    assert validate(nir.NIRGraph(*sound(), type_check=False)) == []


@pytest.mark.parametrize("kind", BROKEN)
def test_each_kind_of_broken_graph_has_its_own_message_and_exit_code_2(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change, rule, message = BROKEN[kind]
    nodes, edges = sound()
    change(nodes, edges)
    graph = nir.NIRGraph(nodes, edges, type_check=False)
    path = tmp_path / "model.nir"
    nir.write(path, graph)
    if rule == "known_types":
        with h5py.File(path, "r+") as file:
            del file["node/nodes/lif2/type"]
            file["node/nodes/lif2/type"] = "Quantum"
    elif rule != "whole_delays":  # that one needs the contract
        assert rule in {finding.rule for finding in validate(graph)}
    assert call(monkeypatch, "check", path, "--dt", "1e-3") == 2
    error = capsys.readouterr().err
    assert f"{path}: {message}" in error
    assert "Traceback" not in error


def test_all_findings_come_at_once() -> None:
    nodes, edges = sound()
    edges += [("lif", "ghost"), ("conv", "lif")]
    nodes["lif2"].tau_mem = 0 * ONES
    nodes["dense"].bias = np.full(3, np.inf)
    rules = [finding.rule for finding in validate(nir.NIRGraph(nodes, edges, type_check=False))]
    assert rules == ["no_dangling_edges", "no_duplicated_edges", "finite_parameters", "positive_parameters"]


def test_a_padding_that_would_help_is_named() -> None:
    nodes, edges = sound()
    nodes["conv"].padding = (0, 0)
    findings = validate(nir.NIRGraph(nodes, edges, type_check=False))
    assert [str(finding) for finding in findings if "conv -> lif" in finding.node] == [
        "edge conv -> lif: 'conv' gives (2, 2, 2), but 'lif' has tau of shape (2, 4, 4); "
        "padding 1 on 'conv' would make them agree"
    ]


def test_a_node_that_leads_nowhere_is_a_warning_only() -> None:
    nodes, edges = sound()
    nodes["probe"] = nir.LI(1e-2 * ONES, ONES, 0 * ONES)
    edges.append(("dense", "probe"))
    (finding,) = validate(nir.NIRGraph(nodes, edges, type_check=False))
    assert (finding.rule, finding.severity, finding.node) == ("used", "warning", "probe")


def test_parameters_that_disagree_within_a_node_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, edges = sound()
    nodes["lif2"].r = np.ones(2)
    nir.write(tmp_path / "model.nir", nir.NIRGraph(nodes, edges, type_check=False))
    assert call(monkeypatch, "check", tmp_path / "model.nir", "--dt", "1e-3") == 2
    assert "node 'lif2': CubaLIF cannot be read: All parameters must have" in capsys.readouterr().err


def test_missing_dt_names_the_flag_and_other_defaults_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.nir"
    nir.write(path, nir.NIRGraph(*sound(), type_check=False))
    assert call(monkeypatch, "check", path) == 0  # the table, and what dt would add
    assert (
        "it has a time constant, but no dt is known; give the framework with --dialect, or the step with --dt"
        in capsys.readouterr().err
    )
    assert call(monkeypatch, "check", path, "--dt", "1e-3", "--reset", "zero") == 0
    assert "has no contract; assumed --fire gt, --delay 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--reset", "half"], "contract: reset is 'half', expected one of ('zero', 'subtract', 'none')"),
        (["--fire", "eq"], "contract: fire is 'eq', expected one of ('gt', 'ge')"),
        (["--delay", "2"], "contract: delay is 2, expected one of (0, 1)"),
        (["--dt", "-1"], "contract: dt is -1.0, expected seconds above 0"),
    ],
)
def test_bad_contract_flags(
    flags: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nir.write(tmp_path / "model.nir", nir.NIRGraph(*sound(), type_check=False))
    assert call(monkeypatch, "check", tmp_path / "model.nir", *flags) == 2
    assert message in capsys.readouterr().err


def test_files_that_are_no_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "check", tmp_path / "none.nir") == 2
    assert "none.nir: no such file" in capsys.readouterr().err
    (tmp_path / "text.nir").write_text("hello")
    assert call(monkeypatch, "check", tmp_path / "text.nir") == 2
    assert "text.nir: not a NIR file" in capsys.readouterr().err


def test_a_reset_to_the_threshold_or_above_is_worth_a_word() -> None:
    nodes, edges = sound()
    nodes["lif2"].v_reset = 2 * ONES
    words = [
        str(f) for f in validate(nir.NIRGraph(nodes, edges, type_check=False)) if f.severity == "warning"
    ]
    assert words == [
        "node 'lif2': v_reset is 2, not below v_threshold 1; with reset zero it never stops firing"
    ]


def test_a_delay_of_ten_thousand_million_steps_is_refused(tmp_path: Path) -> None:
    nodes, edges = sound()
    nodes["back"] = nir.Delay(np.full((2, 4, 4), 1e7))
    nir.write(tmp_path / "late.nir", nir.NIRGraph(nodes, edges, type_check=False))
    with pytest.raises(InputError, match=r"node 'back': a delay of 1e\+10 steps .* at most 1,048,576"):
        read_graph(tmp_path / "late.nir", dt=1e-3)


def test_a_resistance_that_is_one_over_dt_asks_for_dt_and_not_for_other_weights():
    node = nir.IF(*(np.full(3, value) for value in (1000.0, 1.0, 0.0)))
    (finding,) = TIMING.findings({"if": node}, Contract())
    assert finding.rule == "resistance_is_no_step" and "--dt 0.001" in finding.remedy
    assert TIMING.findings({"if": node}, Contract(dt=1e-3)) == []
