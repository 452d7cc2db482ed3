"""The one exception that a user is meant to see."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(Exception):
    """The input or the call is wrong. Printed as one line without traceback, exit code 2.

    The text names the file, node or key, says what was found and what was expected, and what to do:

    >>> raise InputError("model.nir: node 'conv2': stride is 0, expected at least 1")
    Traceback (most recent call last):
    nrf.errors.InputError: model.nir: node 'conv2': stride is 0, expected at least 1
    """


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown word: the nearest known one, and all there are.

    >>> did_you_mean("nettwork", ["name", "network"])
    "did you mean 'network'? known are name, network"
    """
    names = list(known)
    near = get_close_matches(word, names, n=1)
    return (f"did you mean '{near[0]}'? " if near else "") + f"known are {', '.join(names)}"
