"""Layers onto cores: an exact assignment, or the reason why there is none.

Cores differ in kernel and neuron memory, so this is a matching between layers and cores. Augmenting paths
find one whenever it exists. If not, the layers reached from the one left over, and the cores that they reach,
are a certificate (Hall's theorem): these k layers fit only these fewer than k cores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Assignment:
    """Core of every layer; or, where that is impossible, who competes for what."""

    cores: dict[str, int]  # layer -> core
    competing: tuple[str, ...] = ()  # layers that together fit only ...
    contested: tuple[int, ...] = ()  # ... these cores, one fewer than layers

    @property
    def complete(self) -> bool:
        """True if every layer has a core."""
        return not self.competing


def assign(fits: Mapping[str, Sequence[int]]) -> Assignment:
    """Give every layer one of the cores that it fits, each core at most once.

    >>> assign({"a": [0, 1], "b": [0]}).cores
    {'a': 1, 'b': 0}
    >>> assign({"a": [0], "b": [0]}).competing
    ('a', 'b')
    """
    owner: dict[int, str] = {}
    for layer in fits:
        seen: dict[int, None] = {}
        if not _augment(layer, fits, owner, seen):
            competing = {layer, *(owner[core] for core in seen)}
            return Assignment({}, tuple(name for name in fits if name in competing), tuple(sorted(seen)))
    place = {layer: core for core, layer in owner.items()}
    return Assignment({layer: place[layer] for layer in fits})


def _augment(
    layer: str, fits: Mapping[str, Sequence[int]], owner: dict[int, str], seen: dict[int, None]
) -> bool:
    """Find a core for `layer`, moving others where needed; `seen` collects the cores tried."""
    for core in fits[layer]:
        if core in seen:
            continue
        seen[core] = None
        if core not in owner or _augment(owner[core], fits, owner, seen):
            owner[core] = layer
            return True
    return False
