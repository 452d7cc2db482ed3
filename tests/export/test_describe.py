"""Tables and pictures of graphs."""

from xml.etree import ElementTree

import nir
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.export import Contract, Graph, canonical
from nrf.export.describe import describe, remarks
from nrf.export.draw import svg

ODD = 'lif <&> "one"'


def graph(tau: float = 1e-2) -> Graph:
    lif = [np.full((2, 4, 5), v) for v in (tau, 1.0, 0.0, 0.5)]
    nodes = {
        "input": nir.Input(np.array([1, 4, 5])),
        "conv": nir.Conv2d(None, np.ones((2, 1, 3, 3)), 1, 1, 1, 1, np.zeros(2)),
        ODD: nir.LIF(*lif),
        "back": nir.Scale(np.full((2, 4, 5), 0.5)),
        "flat": nir.Flatten({"input": None}, 0, -1),
        "dense": nir.Linear(np.eye(40)[:3]),
        "output": nir.Output(None),
    }
    edges = [("input", "conv"), ("conv", ODD), (ODD, "back"), ("back", ODD), (ODD, "flat")]
    edges += [("flat", "dense"), ("dense", "output")]
    return canonical(nir.NIRGraph(nodes, edges, type_check=False), Contract(dt=1e-3))


def test_rows_say_what_is_in_a_graph() -> None:
    rows = {row.name: row for row in describe(graph())}
    assert rows["conv"].parameters == 18 + 2
    assert rows[ODD].neurons == 40 and rows[ODD].seconds == (0.01, 0.01) and rows[ODD].threshold == (0.5, 0.5)
    assert rows[ODD].inputs == ("conv", "back")
    assert rows["back"].inputs == (f"{ODD}*",)
    assert rows["dense"].synapses == 3  # weights of zero are no synapses


@settings(max_examples=30)
@given(
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 2),
)
def test_synapses_of_a_convolution_are_counted_place_by_place(
    height: int, width: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    if dilation * (kernel - 1) >= min(height, width) + 2 * padding:
        return
    weight = np.random.default_rng(0).integers(0, 2, (2, 3, kernel, kernel)).astype(float)
    conv = nir.Conv2d(None, weight, stride, padding, dilation, 1, np.zeros(2))
    nodes = {"input": nir.Input(np.array([3, height, width])), "conv": conv, "output": nir.Output(None)}
    raw = nir.NIRGraph(nodes, [("input", "conv"), ("conv", "output")], type_check=False)
    counts = torch.conv2d(
        torch.ones(1, 3, height, width), torch.as_tensor(weight).float(), None, stride, padding, dilation
    )
    assert describe(canonical(raw, Contract(dt=1e-3)))[1].synapses == int(counts.sum())


def test_a_time_constant_below_the_step_is_worth_a_word() -> None:
    (remark,) = remarks(graph(tau=0.5e-3))
    assert str(remark) == (
        f"node '{ODD}': tau is 0.0005 s, shorter than dt = 0.001 s; forward Euler overshoots there"
    )
    assert remarks(graph()) == []


def test_the_picture_is_valid_and_names_are_escaped() -> None:
    picture = ElementTree.fromstring(svg(graph()))
    space = "{http://www.w3.org/2000/svg}"
    titles = {title.text for title in picture.iter(f"{space}title")}
    assert titles == {"input", "conv", ODD, "back", "flat", "dense", "output"}
    paths = [
        path
        for path in picture.iter(f"{space}path")
        if path.get("d", "").startswith("M") and path.get("style") is None
    ]
    assert len(paths) == 7
    assert sum(path.get("class") == "recurrent" for path in paths) == 1
    boxes = [(float(box.get("x", 0)), float(box.get("y", 0))) for box in picture.iter(f"{space}rect")]
    assert len(set(boxes)) == 7  # no two nodes on the same spot
