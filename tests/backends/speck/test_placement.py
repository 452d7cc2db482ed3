"""The assignment of layers to cores against brute force."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.backends.speck.placement import assign

CORES = 5
layer_sets = st.lists(st.lists(st.integers(0, CORES - 1), min_size=1, unique=True), min_size=1, max_size=6)


@settings(max_examples=300)
@given(layer_sets)
def test_finds_an_assignment_exactly_where_brute_force_does(sets: list[list[int]]) -> None:
    fits = {f"layer{index}": cores for index, cores in enumerate(sets)}
    possible = len(sets) <= CORES and any(
        all(core in cores for core, cores in zip(order, sets, strict=True))
        for order in permutations(range(CORES), len(sets))
    )
    found = assign(fits)
    assert (not found.competing) == possible
    if possible:
        assert len(set(found.cores.values())) == len(sets)
        assert all(core in fits[layer] for layer, core in found.cores.items())
    else:  # the certificate: these layers reach only fewer cores than they are
        reached = {core for layer in found.competing for core in fits[layer]}
        assert reached == set(found.contested)
        assert len(reached) < len(found.competing)
