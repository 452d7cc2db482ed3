"""Ranges of numbers that a configuration may hold: a table per class says them, one function checks them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nrf.errors import InputError

LARGEST = sys.float_info.max  # what is beyond, or not a number at all, is in no range


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, without `low` itself if `above`, without `high` if `below`.

    >>> print(Range(0, 1, above=True))
    more than 0 and at most 1
    """

    low: float = -LARGEST
    high: float = LARGEST
    above: bool = False
    below: bool = False
    odd: bool = False

    def __contains__(self, number: float) -> bool:
        inside = self.low <= number <= self.high and not (self.odd and number % 2 == 0)
        return inside and not (self.above and number == self.low) and not (self.below and number == self.high)

    def __str__(self) -> str:
        words = ["an odd number"] if self.odd else []
        if self.low > -LARGEST:
            words.append(f"{'more than' if self.above else 'at least'} {self.low}")
        if self.high < LARGEST:
            words.append(f"{'less than' if self.below else 'at most'} {self.high}")
        return " and ".join(words) or "a finite number"


def check(part: Any, ranges: Mapping[str, Range], place: str = "") -> None:
    """Refuse a dataclass with a number, or a number in a tuple, outside its range; None is always inside."""
    for key, allowed in ranges.items():
        value = getattr(part, key)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and number not in allowed:
                raise InputError(f"{place}{key} is {value}, expected {allowed}")
