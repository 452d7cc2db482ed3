"""Each rule says no by name, with the figure and a way out; placement counts cores and memory."""

import nir
import numpy as np
import pytest
from scipy import sparse

import nrf
from nrf.backends import reference
from nrf.backends.loihi.check import check
from nrf.backends.loihi.placement import place
from nrf.backends.lowering.operators import Conv, Matrix
from nrf.export import Graph
from nrf.findings import errors
from tests.backends.loihi.chip import LOIHI
from tests.backends.loihi.graphs import chain, convolutions, joined, lif


def eye(n: int = 4) -> nir.Affine:
    return nir.Affine(np.eye(n), np.zeros(n))


def li(n: int = 4) -> nir.LI:
    return nir.LI(np.full(n, 8e-3), np.ones(n), np.zeros(n))


CASES: list[tuple[str, Graph, str]] = [
    ("reset_exists_on_chip", chain(eye(), lif(4), shape=(4,), reset="none"), "resets not at all"),
    ("reset_exists_on_chip", chain(eye(), lif(4), shape=(4,), reset_at="next"), "one step late (reset zero)"),
    ("membrane_has_no_floor", chain(eye(), lif(4), shape=(4,), v_min=-1.0), "floor at -1.0 V"),
    (
        "threshold_is_above_reset",
        chain(eye(), lif(4, threshold=0.1, v_reset=0.5), shape=(4,)),
        "0.1 is not above",
    ),
    ("step_is_within_time_constant", chain(eye(), lif(4, tau=1e-4), shape=(4,)), "tau is 0.0001 s"),
    ("only_spikes_travel", chain(eye(), li(), eye(), lif(4), shape=(4,)), "LI does not fire, but feeds 'n3'"),
    (
        "loops_hold_a_neuron",
        joined(
            {"a": eye(), "wait": nir.Delay(np.full(4, 1e-3)), "b": eye(), "lif": lif(4)},
            [("input", "a"), ("a", "wait"), ("wait", "b"), ("b", "a"), ("a", "lif"), ("lif", "output")],
            (4,),
        ),
        "has no neuron",
    ),
    (
        "biases_are_not_delayed",
        chain(nir.Affine(np.eye(4), np.ones(4)), nir.Delay(np.full(4, 1e-3)), lif(4), shape=(4,)),
        "node 'n2': delays a bias",
    ),
    ("left_to_host", chain(eye(), shape=(4,)), "no population of the chip reaches"),
    (
        "spikes_arrive_in_time",
        chain(eye(), nir.Delay(np.full(4, 80e-3)), lif(4), shape=(4,)),
        "needs a delay of 79 steps, the chip has 62",
    ),
]


@pytest.mark.parametrize(("rule", "graph", "text"), CASES, ids=[f"{case[0]}: {case[2]}" for case in CASES])
def test_what_the_chip_cannot_do_is_an_error_of_its_rule(rule: str, graph: Graph, text: str) -> None:
    found = errors(check(graph, LOIHI))
    assert [finding.rule for finding in found] == [rule]
    assert text in str(found[0])


def test_a_time_constant_below_the_step_is_fine_where_decays_are_exponential() -> None:
    """exp(-dt/tau) is a fraction whatever tau is: the chip forgets nearly all within a step, as it should."""
    graph = chain(eye(), lif(4, tau=4e-4, threshold=0.4), shape=(4,), integration="exponential")
    assert not errors(check(graph, LOIHI))
    frames = (np.random.default_rng(0).random((40, 4)) < 0.4).astype(np.float32)
    wanted, found = reference.run(graph, frames), nrf.run(nrf.lower(graph, LOIHI), frames)
    assert wanted.spikes["n2"].count > 20
    assert wanted.spikes["n2"].later(found.latency("n2")).before(len(frames)) == found.spikes["n2"]


def test_all_errors_are_found_not_the_first_only() -> None:
    graph = chain(eye(), lif(4, tau=1e-4), shape=(4,), reset="none", v_min=0.0)
    assert len({finding.rule for finding in errors(check(graph, LOIHI))}) == 3


def test_a_good_graph_gets_its_cores_counted_and_the_greediest_node_named() -> None:
    found = {finding.rule: finding for finding in check(convolutions(), LOIHI)}
    assert not errors(list(found.values()))
    assert "needs 3 of 120 cores (1 chip, advisory); node 'n3' asks for 1" in str(found["cores_needed"])
    assert "2 different time constants" in str(found["values_split_populations"])


def test_a_decay_below_the_chips_resolution_is_a_warning() -> None:
    found = {finding.rule: finding for finding in check(chain(eye(), lif(4, tau=5.0), shape=(4,)), LOIHI)}
    assert found["decay_is_not_lost"].severity == "warning"


def test_weights_far_below_the_threshold_are_a_warning() -> None:
    far = chain(nir.Affine(np.eye(4) / 40, np.zeros(4)), lif(4, tau=0.2), shape=(4,))
    found = {finding.rule: finding for finding in check(far, LOIHI)}
    assert "3 of 8 bits of the weights" in str(found["weights_keep_their_bits"])


def test_weights_that_span_more_than_the_state_are_a_warning() -> None:
    rule = "weights_of_a_neuron_fit_one_scale"
    for least, warned in ((1e-6, True), (1.0, False)):
        weight = np.array([[1e6, least], [1.0, 1.0]])
        found = [
            one for one in check(chain(nir.Linear(weight), lif(2), shape=(2,)), LOIHI) if one.rule == rule
        ]
        assert bool(found) == warned
        assert not found or "span from 1.25e-07 to 1.25e+05" in found[0].message, found


def test_cores_are_filled_by_neurons_and_by_memory() -> None:
    kernel = Conv(np.ones((16, 2, 3, 3)), (2, 64, 64), padding=(1, 1))
    placement = place({"a": (16, 64, 64)}, {"a": [kernel]}, LOIHI)
    assert len(placement.cores) == 8 and placement.totals["neurons"] == 65536  # 8192 neurons per core
    assert placement.cores[-1].last == 65535
    assert all(core.memories[0].used <= LOIHI.cores.memory for core in placement.cores)
    dense = Matrix(sparse.csr_array(np.ones((1000, 1000))))
    placement = place({"b": (1000,)}, {"b": [dense]}, LOIHI)
    assert placement.totals["synapses"] == 1_000_000
    assert len(placement.cores) == 11  # 1000 neurons with 2000 bytes of synapses each, 192 KiB per core
    assert placement.cores[0].population == "b"


def test_a_neuron_that_fits_no_core_is_an_error() -> None:
    weight = sparse.csr_array(np.ones((1, 120_000), np.float32))
    graph = joined(
        {"a": nir.Affine(weight.toarray(), np.zeros(1)), "x": lif(1)},
        [("input", "a"), ("a", "x"), ("x", "output")],
        (120_000,),
    )
    (finding,) = errors(check(graph, LOIHI))
    assert finding.rule == "neuron_fits_a_core" and "reduce its fan-in" in str(finding)
