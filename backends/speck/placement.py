"""Layers onto cores: an exact assignment, or the reason why there is none.

Cores differ in kernel and neuron memory, so this is a matching between layers and cores. Augmenting paths
find one whenever it exists. If not, the layers reached from the one left over, and the cores that they reach,
are a certificate (Hall's theorem): these k layers fit only these fewer than k cores.

Where there is none, layers are split in two by output channels, as few of them as can be. Both parts hear
the same sources, so that a split takes one more destination of each. Of all places to split at only those
matter that fill one core: a part that is made larger within the cores that it fits leaves the other smaller.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from math import prod

from nrf.backends.border import CoreUse, Memory, Placement
from nrf.backends.speck.chip import Speck
from nrf.backends.speck.layers import Layer


@dataclass(frozen=True)
class Assignment:
    """Core of every layer; or, where that is impossible, who competes for what."""

    cores: dict[str, int]  # layer -> core
    competing: tuple[str, ...] = ()  # layers that together fit only ...
    contested: tuple[int, ...] = ()  # ... these cores, one fewer than layers


@dataclass(frozen=True)
class Share:
    """Channels of a layer that one core would hold: `first` up to `last`."""

    layer: Layer
    first: int
    last: int

    @property
    def name(self) -> str:
        """The layer's node, with the channels if they are not all."""
        whole = self.last - self.first == self.layer.shape[0]
        return self.layer.node if whole else f"{self.layer.node}[{self.first}:{self.last}]"

    @property
    def words(self) -> tuple[int, int]:
        """Kernel and neuron memory."""
        return self.layer.words(self.last - self.first)


@dataclass(frozen=True)
class Mapped:
    """All shares with their cores, or the certificate that there is no way."""

    shares: tuple[Share, ...]
    found: Assignment
    unfit: tuple[Layer, ...] = ()  # layers that no core takes, nor any two; not among the shares

    def of(self, layer: Layer) -> list[tuple[int, Share]]:
        """Cores of a layer, with their shares."""
        shares = [share for share in self.shares if share.layer is layer]
        return [(self.found.cores[share.name], share) for share in shares if share.name in self.found.cores]


def assign(fits: Mapping[str, Sequence[int]], spared: Sequence[int] = ()) -> Assignment:
    """Give every layer one of the cores that it fits, each core at most once, as few `spared` ones as can be.

    >>> assign({"a": [0, 1], "b": [0]}).cores
    {'a': 1, 'b': 0}
    >>> assign({"a": [0], "b": [0]}).competing
    ('a', 'b')
    >>> assign({"a": [0, 1], "b": [0, 1, 2]}, spared=[0]).cores
    {'a': 1, 'b': 2}
    """
    for count in range(len(spared)):
        for used in combinations(spared, count):
            without = set(spared) - set(used)
            found = _matched({name: [c for c in cores if c not in without] for name, cores in fits.items()})
            if not found.competing:
                return found
    return _matched(fits)


def _matched(fits: Mapping[str, Sequence[int]]) -> Assignment:
    owner: dict[int, str] = {}
    for layer in fits:
        seen: dict[int, None] = {}
        if not _augment(layer, fits, owner, seen):
            competing = {layer, *(owner[core] for core in seen)}
            return Assignment({}, tuple(name for name in fits if name in competing), tuple(sorted(seen)))
    core_of = {layer: core for core, layer in owner.items()}
    return Assignment({layer: core_of[layer] for layer in fits})


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


def mapped(layers: Sequence[Layer], chip: Speck) -> Mapped:
    """The layers on cores, split as little as possible; of equally little, on few stochastic cores."""
    wholes = [Share(layer, 0, layer.shape[0]) for layer in layers]
    found = _assigned(wholes, chip) if all(cores_for(share, chip) for share in wholes) else None
    if found and not found.competing:
        return Mapped(tuple(wholes), found)
    ways = [_ways(share, layers, chip) for share in wholes]
    unfit = tuple(share.layer for share, each in zip(wholes, ways, strict=True) if not each)
    first = None
    for chosen in _fewest_splits([each for each in ways if each], chip.cores.count):
        shares = tuple(chain.from_iterable(chosen))
        if len(shares) == len(chosen) or _destinations_fit(layers, shares, chip):
            answer = Mapped(shares, _assigned(shares, chip), unfit)
            first = first or answer
            if not answer.found.competing:
                return answer
    return first or Mapped((), Assignment({}), unfit)


def _assigned(shares: Sequence[Share], chip: Speck) -> Assignment:
    return assign({share.name: cores_for(share, chip) for share in shares}, chip.cores.stochastic)


def _ways(whole: Share, layers: Sequence[Layer], chip: Speck) -> list[tuple[Share, ...]]:
    """Every way in which a layer fits cores: as a whole if it does, and in two halves."""
    layer, features = whole.layer, whole.last
    room = {
        core: n for n in range(1, features) for core in cores_for(Share(layer, 0, n), chip)
    }  # the largest
    sizes = sorted(set(room.values()), reverse=True)
    halves = [(Share(layer, 0, n), Share(layer, n, features)) for n in sizes]
    if halves and not _destinations_fit(layers, halves[0], chip):
        halves = []
    return [way for way in [(whole,), *halves] if all(cores_for(share, chip) for share in way)]


def _fewest_splits(
    ways: Sequence[Sequence[tuple[Share, ...]]], cores: int
) -> Iterator[tuple[tuple[Share, ...], ...]]:
    """One way per layer, all combinations that the cores suffice for, those with the fewest shares first."""
    for extra in range(max(cores - len(ways), 0) + 1):
        for split in combinations(range(len(ways)), extra):
            kinds = [[way for way in each if (len(way) > 1) == (n in split)] for n, each in enumerate(ways)]
            yield from product(*kinds)


def _destinations_fit(layers: Sequence[Layer], shares: Sequence[Share], chip: Speck) -> bool:
    """Whether nothing feeds too many cores, with layers split as the shares say and the others whole."""
    feeds: dict[str, int] = {}
    for layer in layers:
        count = max(sum(share.layer is layer for share in shares), 1)
        for source in layer.sources:
            feeds[source.name] = feeds.get(source.name, 0) + count
    return max(feeds.values(), default=0) <= chip.cores.destinations


def placed(where: Mapped, chip: Speck) -> Placement:
    """The cores of every layer of a graph that passed the rules, and how full they are."""
    uses, totals = [], {"kernel words": 0, "neuron words": 0}
    for share in where.shares:
        core, (kernel, neurons) = where.found.cores[share.name], share.words
        memories = (
            Memory("kernel words", kernel, chip.cores.kernel_words[core]),
            Memory("neuron words", neurons, chip.cores.neuron_words[core]),
        )
        first, last = (channel * prod(share.layer.shape[1:]) for channel in (share.first, share.last))
        uses.append(CoreUse(core, share.layer.node, first, last - 1, memories))
        totals |= {memory.name: totals[memory.name] + memory.used for memory in memories}
    return Placement(tuple(uses), chip.cores.count, totals=totals)


def cores_for(share: Share, chip: Speck) -> list[int]:
    """Cores with enough memory, the smallest first so that the large ones stay free."""
    kernel, neuron = chip.cores.kernel_words, chip.cores.neuron_words
    words = share.words
    cores = [
        core for core in range(chip.cores.count) if words[0] <= kernel[core] and words[1] <= neuron[core]
    ]
    return sorted(cores, key=lambda core: (kernel[core] * neuron[core], core))
