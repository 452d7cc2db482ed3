"""What tuning needs to know of a chip: its own neuron in the words of a contract, and its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from nrf.export.contract import Contract


@dataclass(frozen=True)
class Setting:
    """One way to set the chip's neuron up, in units of the threshold."""

    floor: float | None = None  # the membrane is held above; None for no floor
    leak: float = 0.0  # linear: thresholds lost per share that LIF loses; exponential: share that IF loses
    own_reset: bool = False  # reset as the graph does, where the chip can; else as the chip does first

    def __str__(self) -> str:
        floor = "no floor" if self.floor is None else f"floor {self.floor:g}"
        return f"{floor}, leak {self.leak:g}" + self.own_reset * ", own reset"


@dataclass(frozen=True)
class Student:
    """The chip's own neuron, v in thresholds; whole numbers W and B stand for W 2^-k and B 2^-k / bias_steps.

    linear        v <- v + sum of W 2^-k - leak           the leak is part of the bias
    exponential   v <- (1 - D / decay_steps) v + sum of W 2^-k
    """

    contract: Mapping[str, tuple[str | int, ...]]  # what the chip has of a field, the usual one first
    settings: tuple[Setting, ...]  # to try before any training
    leak: Literal["linear", "exponential"]
    weights: tuple[int, int]  # lowest and highest W
    biases: tuple[int, int]  # lowest and highest B
    bias_steps: int = 1  # steps of a bias per step of a weight
    decay_steps: int = 1
    finest: int = 10  # largest k
    currents: bool = (
        False  # whether it filters its input, as CubaLIF does: u <- (1 - D / decay_steps) u + ...
    )
    recurrent: bool = False  # whether populations may hear what they fired a step before
    runtime: str = "builtin"  # the built-in simulator that works as the chip does

    def adopted(self, contract: Contract) -> Contract:
        """A contract as the chip has it: its own fields where the chip can, else the usual ones; no floor."""
        lacking = {key: has[0] for key, has in self.contract.items() if getattr(contract, key) not in has}
        return replace(contract.with_(**lacking), v_min=None)
