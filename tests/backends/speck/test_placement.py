"""The assignment of layers to cores against brute force, and layers that are split over two."""

from dataclasses import replace
from itertools import chain, permutations, product

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nrf.backends import reference
from nrf.backends.border import Spikes
from nrf.backends.conformance.ladder import Clip, conform
from nrf.backends.speck.check import check
from nrf.backends.speck.draft import Draft
from nrf.backends.speck.parts import parts_of
from nrf.backends.speck.placement import Share, assign, cores_for, mapped, placed
from nrf.backends.speck.simulate import alone, merged

from .graphs import SPECK, lower, one_layer
from .programs import BITS
from .random_graphs import SMALL, events, random_graph

CORES = 5
layer_sets = st.lists(st.lists(st.integers(0, CORES - 1), min_size=1, unique=True), min_size=1, max_size=6)


@settings(max_examples=300)
@given(layer_sets, st.sets(st.integers(0, CORES - 1), max_size=3))
def test_finds_an_assignment_exactly_where_brute_force_does(sets: list[list[int]], spared: set[int]) -> None:
    fits = {f"layer{index}": cores for index, cores in enumerate(sets)}
    possible = [
        order
        for order in (permutations(range(CORES), len(sets)) if len(sets) <= CORES else [])
        if all(core in cores for core, cores in zip(order, sets, strict=True))
    ]
    found = assign(fits, sorted(spared))
    assert (not found.competing) == bool(possible)
    if possible:
        assert len(set(found.cores.values())) == len(sets)
        assert all(core in fits[layer] for layer, core in found.cores.items())
        fewest = min(len(spared & set(order)) for order in possible)
        assert len(spared & set(found.cores.values())) == fewest
    else:  # the certificate: these layers reach only fewer cores than they are
        reached = {core for layer in found.competing for core in fits[layer]}
        assert reached == set(found.contested)
        assert len(reached) < len(found.competing)


def test_cores_0_and_1_are_left_for_last() -> None:
    large = one_layer(size=64, kernel=1, features=16)  # 64 Ki neuron words: cores 0, 1 and 2
    (layer,) = Draft(large, SPECK).layers
    assert cores_for(Share(layer, 0, 16), SPECK) == [0, 1, 2]
    placement = placed(mapped([layer], SPECK), SPECK)
    assert [use.core for use in placement.cores] == [2]
    assert placement.totals == {"kernel words": 32, "neuron words": 2**16}


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_layers_are_split_only_where_they_must_be_and_at_every_place_that_helps(seed: int) -> None:
    """Against every split of every layer at every channel."""
    graph = (random_graph(seed) or [None])[0]
    assume(graph is not None and len(graph.neurons) <= 4)
    assert graph is not None
    layers = [layer for layer in Draft(graph, SPECK).layers if len(layer.sources) == 1]
    ways = [[(Share(layer, 0, 4),), *((Share(layer, 0, n), Share(layer, n, 4)) for n in (1, 2, 3))]
            for layer in layers]  # fmt: skip
    possible = []
    for chosen in product(*ways):
        shares = list(chain.from_iterable(chosen))
        counts = {share.layer.node: len(way) for way in chosen for share in way}
        sources = {source.name for layer in layers for source in layer.sources}
        feeds = [
            sum(counts[layer.node] for layer in layers if layer.sources[0].name == name) for name in sources
        ]
        if max(feeds, default=0) <= 2 and not assign({s.name: cores_for(s, SMALL) for s in shares}).competing:
            possible.append(len(shares))
    where = mapped(layers, SMALL)
    assert bool(possible) == (not where.unfit and not where.found.competing)
    if possible:
        assert len(where.shares) == min(possible)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_parts_of_a_split_layer_fire_as_the_whole_does(seed: int) -> None:
    """Every core alone, fed with the reference's spikes: together they give the reference's own."""
    graph = (random_graph(seed) or [None])[0]
    assume(graph is not None)
    assert graph is not None
    program, rng = lower(graph), np.random.default_rng(seed)
    places = [int(rng.integers(1, each.shape[0])) for each in program.populations]
    split = [
        replace(each, more=((20 + n, place),))
        for n, (each, place) in enumerate(zip(program.populations, places, strict=True))
    ]
    program = replace(program, populations=tuple(split))
    frames = events(rng, program.input_shape, steps=12)
    wanted = reference.run(graph, frames.astype(np.float32))
    found: dict[str, list[np.ndarray]] = {each.node: [] for each in program.populations}  # type: ignore[type-arg]
    for part in parts_of(program):
        population = part.population
        ways = [
            (wanted.spikes[s.name], s.pool, program.shapes[s.name])
            if s.name != program.input
            else (Spikes.from_dense(frames), s.pool, program.input_shape)
            for s in population.sources
        ]
        share = replace(population, weight=part.kernel.weight, bias=part.bias, shape=part.shape)
        spikes = alone(share, BITS, merged(ways, population.input_shape), len(frames))
        found[population.node].append(spikes.dense(len(frames), part.shape))
    for node, parts in found.items():
        whole = wanted.dense(node)
        assert np.array_equal(np.concatenate(parts, axis=1).reshape(whole.shape), whole)


def test_a_layer_that_needs_two_cores_passes_check_and_conforms() -> None:
    weight = np.random.default_rng(0).integers(-9, 20, (24, 2, 3, 3)) / 64
    graph = one_layer(size=64, kernel=3, features=24, padding=1)
    graph.nodes["conv"].weight = weight
    (note,) = [finding for finding in check(graph, SPECK) if finding.rule == "split_over_cores"]
    assert note.severity == "note"
    assert "channels, 0 to 15 on core 2 and 16 to 23 on core 3" in note.message
    program = lower(graph)
    assert [(use.core, use.first, use.last) for use in program.lowered.placement.cores] == [
        (2, 0, 16 * 4096 - 1),
        (3, 16 * 4096, 24 * 4096 - 1),
    ]
    clip = events(np.random.default_rng(1), (2, 64, 64), 20).astype(np.float32)
    report = conform(graph, SPECK, [Clip("one", clip)], runtimes=["builtin", "asynchronous"])
    assert report.verdict == "pass", report.failures
