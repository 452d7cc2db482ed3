"""Every rule at its limit (silent) and one past it (named, with figure and remedy)."""

from dataclasses import replace
from typing import Any

import nir
import numpy as np
import pytest

from nrf.backends.conformance.ladder import Clip, conform
from nrf.backends.speck.check import check
from nrf.export import Contract, Graph
from nrf.findings import Finding, errors

from .graphs import CHIP, SPECK, chain, convolution, integrate_and_fire, one_layer, pool


def named(graph: Graph, rule: str) -> list[Finding]:
    return [finding for finding in check(graph, SPECK) if finding.rule == rule]


LIMITS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("kernel_fits", {"size": 20, "kernel": 16}, {"size": 20, "kernel": 17}),
    ("stride_is_supported", {"size": 32, "stride": 8}, {"size": 32, "stride": 3}),
    ("padding_fits", {"size": 16, "kernel": 15, "padding": 7}, {"size": 16, "kernel": 17, "padding": 8}),
    ("kernel_fits", {"size": 20, "kernel": 6, "dilation": 3}, {"size": 20, "kernel": 5, "dilation": 4}),
    ("input_map_fits", {"size": 128, "stride": 4}, {"size": 129, "stride": 4}),
    ("output_map_fits", {"size": 64, "padding": 1}, {"size": 65, "padding": 1}),
    ("channels_fit", {"features": 1024, "size": 3}, {"features": 1025, "size": 3}),
    (
        "pooling_is_supported",
        {"before": pool(4), "pooled": 2, "kernel": 1},
        {"before": pool(3), "pooled": 2, "kernel": 1},
    ),
    (
        "pooling_is_supported",  # overlap is part of the kernel, as long as that is not too large
        {"size": 20, "before": pool(2, stride=1), "pooled": 19, "kernel": 15},
        {"size": 20, "before": pool(2, stride=1), "pooled": 19, "kernel": 16},
    ),
    (
        "pooling_is_supported",  # and so is padding, unless it is padded again
        {"before": pool(3, stride=1, padding=1), "pooled": 8},
        {"before": pool(3, stride=1, padding=1), "pooled": 8, "padding": 1},
    ),
    ("weights_fit", {"weight": 127.0}, {"weight": 127.5}),
    ("one_spike_per_update", {"weight": 1.0}, {"weight": 1.1}),
    ("states_fit", {"weight": 1 / 32767}, {"weight": 1 / 32768}),
]


@pytest.mark.parametrize(("rule", "within", "beyond"), LIMITS)
def test_a_limit_holds_and_one_past_it_is_named(
    rule: str, within: dict[str, Any], beyond: dict[str, Any]
) -> None:
    assert not named(one_layer(**within), rule)
    (finding, *_) = named(one_layer(**beyond), rule)
    assert finding.message
    assert finding.remedy


def test_messages_name_what_is_not_supported() -> None:
    (finding,) = named(one_layer(size=20, kernel=17), "kernel_fits")
    assert finding.message == "side of the kernel: 17, a core has at most 16"
    (finding,) = named(one_layer(size=32, stride=3), "stride_is_supported")
    assert finding.message == "stride 3 is not supported on Speck, 1, 2, 4 and 8 are"


@pytest.mark.parametrize("dt", [1e-6, 1e-3])
def test_the_largest_weight_of_lif_counts_with_its_time_constant(dt: float) -> None:
    """One spike brings dt/tau of the weight: the same network fits at every step that is short enough."""

    def graph(weight: float) -> Graph:
        shape = (2, 4, 4)
        ones = np.ones(shape)
        nodes = {
            "input": nir.Input(np.array(shape)),
            "conv": convolution(np.full((2, 2, 1, 1), weight), (4, 4)),
            "n": nir.LIF(ones * 5e-3, ones, ones * 0, ones, ones * 0),
            "output": nir.Output(np.array(shape)),
        }
        return chain(nodes, Contract(dt=dt))

    assert not errors(check(graph(1.0), SPECK, approximate=True))
    above = graph(1.1 * 5e-3 / dt)  # 1.1 thresholds per spike
    assert "is 1.1 thresholds" in named(above, "one_spike_per_update")[0].message
    assert named(graph(128 * 5e-3 / dt), "weights_fit")
    assert named(graph(5e-3 / dt / 40_000), "states_fit")


def test_neuron_memory_counts_in_powers_of_two_and_the_remedy_is_worked_out() -> None:
    fits = one_layer(size=64, kernel=1, features=16)
    assert not errors(check(fits, SPECK))
    assert not errors(check(one_layer(size=64, kernel=1, features=32), SPECK)), "on two cores"
    (finding,) = named(one_layer(size=64, kernel=1, features=33), "core_memory")
    assert "132 Ki neuron words" in finding.message
    assert "it cannot be split over two" in finding.message
    assert "stride 2 on 'conv' would bring 132 Ki to 33 Ki neuron words" in finding.remedy


def test_kernel_memory_counts_in_powers_of_two() -> None:
    # 64 channels * 2^(ceil(log2 9) + ceil(log2 64)) = 64 Ki words; one more input channel needs two cores
    assert not named(one_layer(size=4, channels=64, features=64), "split_over_cores")
    (finding,) = named(one_layer(size=4, channels=65, features=64), "split_over_cores")
    assert "0 to 31 on core 6 and 32 to 63 on core 5" in finding.message
    (finding,) = named(one_layer(size=4, channels=65, features=65), "core_memory")
    assert "130 Ki kernel" in finding.message


def test_a_bias_that_leaves_no_room_for_weights_is_refused() -> None:
    """One scale for both: with 13 thresholds of bias in 8 bits, a weight of .1 is .98 and rounds away."""
    assert not named(one_layer(bias=np.full(4, 12.0)), "states_fit")
    (finding,) = named(one_layer(bias=np.full(4, 13.0)), "states_fit")
    assert (
        "where 13 thresholds of bias fit 8 bits, the largest weight is 0.977 and rounds away"
        in finding.message
    )
    assert finding.severity == "error"


def test_weights_that_are_all_zero_are_no_error() -> None:
    graph = one_layer(weight=0.0, bias=np.full(4, 0.25))
    assert not errors(check(graph, SPECK))
    (finding,) = named(graph, "weights_are_not_all_zero")
    assert finding.severity == "warning"
    report = conform(graph, SPECK, [Clip("one", np.ones((30, 2, 8, 8), np.float32))], runtimes=["builtin"])
    assert report.verdict == "pass", report.failures


def test_biases_are_one_per_channel_and_few_enough() -> None:
    assert not named(one_layer(features=1024, size=3, bias=np.full(1024, 0.1)), "biases_fit")
    beyond = one_layer(features=1025, size=3, bias=np.full(1025, 0.1))
    assert "biases: 1025" in named(beyond, "biases_fit")[0].message


def test_a_bias_that_padding_makes_uneven_is_refused() -> None:
    shape = (2, 8, 8)
    graph = chain(
        {
            "input": nir.Input(np.array([2, 8, 8])),
            "conv1": convolution(np.full((2, 2, 1, 1), 0.5), (8, 8), bias=np.ones(2)),
            "conv2": convolution(np.full((2, 2, 3, 3), 0.1), (8, 8), padding=1),
            "if": integrate_and_fire(shape),
            "output": nir.Output(np.array(shape)),
        }
    )
    assert "differs within a channel" in named(graph, "one_bias_per_channel")[0].message


def test_thresholds_may_differ_between_channels_but_not_within() -> None:
    between = np.arange(1.0, 5.0)[:, None, None]
    within = np.ones((4, 6, 6)) + np.eye(6)
    assert not errors(check(one_layer(threshold=between, contract=replace(CHIP, v_min=None)), SPECK))
    (finding,) = named(one_layer(threshold=within), "one_threshold_per_core")
    assert "is 1 to 2 within a channel" in finding.message


def test_only_integrate_and_fire_is_taken_exactly() -> None:
    def graph(neuron: nir.NIRNode) -> Graph:
        nodes = {
            "input": nir.Input(np.array([2, 4, 4])),
            "conv": convolution(np.full((2, 2, 1, 1), 0.1), (4, 4)),
            "n": neuron,
            "output": nir.Output(np.array([2, 4, 4])),
        }
        return chain(nodes, Contract(dt=1e-3))

    ones = np.ones((2, 4, 4))
    lif = graph(nir.LIF(ones * 5e-3, ones, ones * 0, ones, ones * 0))
    assert named(lif, "neuron_leaks_linearly")[0].severity == "error"
    assert not errors(check(lif, SPECK, approximate=True))
    assert named(graph(nir.LI(ones * 5e-3, ones, ones * 0)), "neuron_is_supported")
    assert not errors(check(graph(nir.IF(ones * 1e3, ones, ones * 0)), SPECK))
    assert named(graph(nir.IF(ones * 1e3, ones, ones * 0.5)), "neuron_is_supported")


@pytest.mark.parametrize("approximate", [False, True])
def test_a_resting_potential_that_is_left_out_is_named(approximate: bool) -> None:
    def found(v_leak: float) -> list[Finding]:
        shape = (2, 4, 4)
        ones = np.ones(shape)
        nodes = {
            "input": nir.Input(np.array(shape)),
            "n": nir.LIF(ones * 5e-3, ones, ones * v_leak, ones, ones * 0),
            "output": nir.Output(np.array(shape)),
        }
        findings = check(chain(nodes, Contract(dt=1e-3)), SPECK, approximate=approximate)
        return [finding for finding in findings if finding.rule == "neuron_rests_at_zero"]

    assert not found(0.0)
    (finding,) = found(-0.4)
    assert finding.severity == "warning"
    assert "rests at -0.4 V (v_leak)" in finding.message


def test_the_floor_is_not_above_the_reset() -> None:
    assert not named(one_layer(contract=CHIP.with_(v_min=0.0)), "floor_at_or_below_zero")
    assert named(one_layer(contract=CHIP.with_(v_min=0.1)), "floor_at_or_below_zero")


@pytest.mark.parametrize(
    "field", [{"reset": "none"}, {"reset_at": "next", "reset": "zero"}, {"reset_at": "held"}]
)
def test_what_the_contract_asks_and_no_core_does_is_refused_by_name(field: dict[str, str]) -> None:
    (finding,) = errors(check(one_layer(contract=CHIP.with_(**field)), SPECK))
    key, value = next(iter(field.items()))
    assert finding.message == f"contract: {key} '{value}' is not supported on Speck"
    assert finding.remedy


def skipping(contract: Contract, bias: float = 0.0) -> Graph:
    """input -> a -> b, and input -> b through the same kernel as a -> b."""
    one = np.random.default_rng(0).integers(-9, 30, (2, 2, 1, 1)) / 64
    nodes = {
        "input": nir.Input(np.array([2, 4, 4])),
        "ca": convolution(one, (4, 4)),
        "a": integrate_and_fire((2, 4, 4)),
        "cb": convolution(one, (4, 4), bias=np.full(2, bias)),
        "b": integrate_and_fire((2, 4, 4)),
        "output": nir.Output(np.array([2, 4, 4])),
    }
    edges = [("input", "ca"), ("ca", "a"), ("a", "cb"), ("input", "cb"), ("cb", "b"), ("b", "output")]
    return chain(nodes, contract, edges)


@pytest.mark.parametrize("field", [{"delay": 1}, {"emit": "late"}])
def test_steps_that_a_contract_delays_are_declared_but_not_on_ways_of_other_lengths(field: Any) -> None:
    contract = CHIP.with_(**field)
    assert not errors(check(skipping(CHIP), SPECK))
    (finding,) = errors(check(skipping(contract), SPECK))
    assert (finding.rule, finding.node) == ("steps_agree", "b")
    assert "those of 'a' " in finding.message
    frames = (np.random.default_rng(0).random((30, 2, 8, 8)) < 0.2).astype(np.float32)
    graph = one_layer(weight=0.125, contract=contract)
    report = conform(graph, SPECK, [Clip("one", frames)], runtimes=["builtin"])
    assert report.verdict == "pass", report.failures
    assert not named(graph, "biases_start_with_spikes")
    biased = named(one_layer(contract=contract, bias=np.full(4, 0.25)), "biases_start_with_spikes")
    assert len(biased) == field.get("delay", 0), "a late neuron hears its input in time"


def test_late_spikes_for_some_populations_only_are_refused() -> None:
    graph = replace(skipping(CHIP), node_contracts={"a": CHIP.with_(emit="late")})
    assert "for some populations only" in named(graph, "steps_agree")[0].message


@pytest.mark.parametrize(
    ("sensor", "message"),
    [
        ("64x64,crop=0:8:0:10", "gives (2, 8, 10), the input takes (2, 8, 8)"),
        ("256x256,crop=0:8:0:8", "a sensor of 256 pixels, the chip's is 128"),
        ("64x64,crop=1:9:0:8", "no multiple of the pooling by 2"),
    ],
)
def test_a_sensor_stage_that_the_chip_does_not_have_is_refused(sensor: str, message: str) -> None:
    fine = one_layer(before=pool(2), pooled=4, contract=CHIP.with_(sensor="128x128,crop=64:72:2:10,flip=xy"))
    assert not errors(check(fine, SPECK))
    (finding,) = errors(check(replace(fine, contract=CHIP.with_(sensor=sensor)), SPECK))
    assert finding.rule == "sensor_stage_fits"
    assert message in finding.message


def test_a_loop_is_named_once_and_an_edge_without_a_kernel_as_such() -> None:
    eye = np.eye(2)[:, :, None, None]
    nodes = {
        "input": nir.Input(np.array([2, 4, 4])),
        "c": convolution(eye, (4, 4)),
        "n": integrate_and_fire((2, 4, 4)),
        "back": convolution(eye, (4, 4)),
        "m": integrate_and_fire((2, 4, 4)),
        "output": nir.Output(np.array([2, 4, 4])),
    }
    path = [("input", "c"), ("c", "n"), ("n", "back"), ("m", "output")]
    (loop,) = errors(check(chain(nodes, CHIP, [*path, ("back", "n"), ("n", "m")]), SPECK))
    assert loop.rule == "feed_forward"
    (skip,) = errors(check(chain(nodes, CHIP, [*path, ("back", "m"), ("input", "m")]), SPECK))
    assert skip.node == "m" and "an edge from 'input' and 'back'" in skip.message


def test_fewer_channels_are_proposed_only_where_they_would_do() -> None:
    for channels, advice in ((64, "128 instead of 256"), (1024, "a smaller kernel")):
        (finding,) = named(one_layer(channels=channels, features=256), "core_memory")
        assert advice in finding.remedy


def test_contracts_of_single_nodes_count() -> None:
    graph = replace(one_layer(), node_contracts={"if": CHIP.with_(reset_at="held")})
    assert named(graph, "contract_is_supported")


def test_a_floor_needs_one_threshold_unless_it_is_zero() -> None:
    uneven = np.array([1.0, 4.0])[:, None, None]
    for v_min in (None, 0.0):
        graph = one_layer(features=2, threshold=uneven, contract=replace(CHIP, v_min=v_min))
        assert not errors(check(graph, SPECK))
    assert not errors(check(one_layer(features=2, threshold=4.0), SPECK))
    (finding,) = errors(check(one_layer(features=2, threshold=uneven), SPECK))
    assert finding.rule == "one_floor_per_core"
    assert "from 1 to 4 V" in finding.message


def test_only_subtraction_above_the_threshold_is_not_exact() -> None:
    for reset, fire in (("zero", "gt"), ("zero", "ge"), ("subtract", "ge"), ("subtract", "gt")):
        found = named(one_layer(contract=CHIP.with_(reset=reset, fire=fire)), "fires_at_threshold")
        assert [finding.severity for finding in found] == ["warning"] * ((reset, fire) == ("subtract", "gt"))


def fan(readers: int, input_pools: tuple[int, ...] = (1,)) -> Graph:
    """One population that feeds several, which end in one."""
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([2, 8, 8]))}
    edges = []
    for size in input_pools:
        side = 8 // size
        nodes |= {
            f"p{size}": pool(size),
            f"c{size}": convolution(
                np.full((2, 2, 1, 1), 0.1), (side, side), stride=max(input_pools) // size
            ),
            f"n{size}": integrate_and_fire((2, 8 // max(input_pools), 8 // max(input_pools))),
        }
        edges += [("input", f"p{size}"), (f"p{size}", f"c{size}"), (f"c{size}", f"n{size}")]
    side = 8 // max(input_pools)
    for index in range(readers):
        nodes |= {
            f"d{index}": convolution(np.full((2, 2, 1, 1), 0.1), (side, side)),
            f"m{index}": integrate_and_fire((2, side, side)),
        }
        edges += [(f"n{size}", f"d{index}") for size in input_pools] + [(f"d{index}", f"m{index}")]
    nodes |= {
        "last": convolution(np.full((2, 2, 1, 1), 0.1), (side, side)),
        "end": integrate_and_fire((2, side, side)),
        "output": nir.Output(np.array([2, side, side])),
    }
    edges += [(f"m{index}", "last") for index in range(readers)] + [("last", "end"), ("end", "output")]
    return chain(nodes, CHIP, edges)


def test_two_destinations_and_no_more() -> None:
    assert not errors(check(fan(2), SPECK))
    (finding,) = named(fan(3), "destinations_fit")
    assert "m0, m1, m2" in finding.message


def test_the_sensor_pools_once() -> None:
    assert not errors(check(fan(1, (2,)), SPECK))
    assert named(fan(1, (1, 2)), "one_sensor_pooling")


def test_competing_layers_are_named_with_their_cores() -> None:
    """Layers of 64 Ki kernel words: two cores have them, two take half of one each. Four are too many."""

    def layers(count: int) -> Graph:
        nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([64, 4, 4]))}
        for index in range(count):
            nodes |= {
                f"conv{index}": convolution(np.full((64, 64, 3, 3), 0.01), (4, 4), padding=1),
                f"if{index}": integrate_and_fire((64, 4, 4)),
            }
        return chain(nodes | {"output": nir.Output(np.array([64, 4, 4]))})

    (split,) = named(layers(3), "split_over_cores")
    assert "0 to 31 on core 4 and 32 to 63 on core 3" in split.message
    assert not named(layers(3), "layers_find_cores")
    (finding,) = named(layers(4), "layers_find_cores")
    assert "if0, if1, if2" in finding.message
    assert "cores 5, 6" in finding.message


def test_what_has_not_the_form_of_a_core_is_refused_by_name() -> None:
    one = np.full((2, 2, 1, 1), 0.1)
    shape = (2, 8, 8)
    nodes = {
        "input": nir.Input(np.array(shape)),
        "a": convolution(one, (8, 8)),
        "b": convolution(one, (8, 8)),
        "n": integrate_and_fire(shape),
        "output": nir.Output(np.array(shape)),
    }
    edges = [("input", "a"), ("input", "b"), ("a", "n"), ("b", "n"), ("n", "output")]
    assert named(chain(nodes, CHIP, edges), "one_kernel_per_core")


def two_ways(pools: tuple[nir.NIRNode, nir.NIRNode]) -> Graph:
    """Two populations, each pooled in its own way, that meet before one convolution."""
    one = np.full((1, 1, 1, 1), 0.5)
    nodes: dict[str, nir.NIRNode] = {"input": nir.Input(np.array([1, 8, 8]))}
    edges = []
    for name, pooling in zip("ab", pools, strict=True):
        nodes |= {
            f"c{name}": convolution(one, (8, 8)),
            name: integrate_and_fire((1, 8, 8)),
            f"p{name}": pooling,
        }
        edges += [("input", f"c{name}"), (f"c{name}", name), (name, f"p{name}"), (f"p{name}", "c")]
    nodes |= {
        "c": convolution(one, (4, 4)),
        "n": integrate_and_fire((1, 4, 4)),
        "output": nir.Output(np.array([1, 4, 4])),
    }
    return chain(nodes, CHIP, [*edges, ("c", "n"), ("n", "output")])


@pytest.mark.parametrize("kind", [nir.SumPool2d, nir.AvgPool2d])
def test_sources_meet_before_one_kernel_only_if_pooling_divides_them_alike(kind: type) -> None:
    assert not errors(check(two_ways((pool(2, kind=kind), pool(2, kind=kind))), SPECK))
    other = nir.SumPool2d if kind is nir.AvgPool2d else nir.AvgPool2d
    (finding,) = named(two_ways((pool(2, kind=kind), pool(2, kind=other))), "one_kernel_per_core")
    assert finding.node == "n"
    assert "divided by 4" in finding.message
    assert "divided by 1" in finding.message


def test_the_host_adds_populations_that_end_in_the_output() -> None:
    shape = (1, 4, 4)
    nodes = {
        "input": nir.Input(np.array(shape)),
        "a": integrate_and_fire(shape),
        "b": integrate_and_fire(shape),
        "output": nir.Output(np.array(shape)),
    }
    edges = [("input", "a"), ("input", "b"), ("a", "output")]
    assert not named(chain(nodes, CHIP, [*edges, ("a", "b")]), "left_to_host")
    (finding,) = named(chain(nodes, CHIP, [*edges, ("b", "output")]), "left_to_host")
    assert finding.severity == "note"
    assert "from 'a', 'b'" in finding.message


def test_recurrence_and_uneven_delays_are_refused_by_name() -> None:
    one = np.full((2, 2, 1, 1), 0.1)
    shape = (2, 4, 4)
    nodes = {
        "input": nir.Input(np.array(shape)),
        "a": convolution(one, (4, 4)),
        "n": integrate_and_fire(shape),
        "back": convolution(one, (4, 4)),
        "output": nir.Output(np.array(shape)),
    }
    edges = [("input", "a"), ("a", "n"), ("n", "back"), ("back", "n"), ("n", "output")]
    assert named(chain(nodes, CHIP, edges), "feed_forward")
    edges = [("input", "a"), ("a", "back"), ("back", "n"), ("n", "output")]
    late = {**nodes, "back": nir.Delay(np.arange(32.0).reshape(shape))}
    (finding,) = named(chain(late, CHIP, edges), "one_delay_per_way")
    assert finding.message == "delays some values by 0 and others by 31 steps, Speck none"
    late = {**nodes, "a": convolution(one, (4, 4), bias=[1.0, 0.0]), "back": nir.Delay(np.ones(shape))}
    order = [("input", "back"), ("back", "a"), ("a", "n"), ("n", "output")]
    assert named(chain(late, CHIP, order), "biases_wait_for_no_delay")
    late = {**nodes, "back": nir.Delay(np.ones(shape))}
    assert named(chain(late, CHIP, [*edges, ("a", "n")]), "steps_agree")


def test_all_findings_come_at_once() -> None:
    graph = one_layer(size=129, kernel=17, stride=3, padding=8, dilation=2)
    rules = {finding.rule for finding in errors(check(graph, SPECK))}
    assert {"kernel_fits", "stride_is_supported", "padding_fits", "input_map_fits"} <= rules
