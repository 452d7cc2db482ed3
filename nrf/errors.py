"""The one exception that a user is meant to see."""

from collections.abc import Iterable
from difflib import get_close_matches

WIDTH, LINES = 500, 20  # of a message, whatever a file puts into it
INDENT = "\n       "  # between the findings of one message; any other line break comes from a file


class InputError(Exception):
    """The input or the call is wrong. Printed as one line without traceback, exit code 2.

    The text names the file, node or key, says what was found and what was expected, and what to do. What it
    quotes is a stranger's: no control code of it reaches a terminal, and lines have a bounded length. `rules`
    are the names of those that refused, if any did.

    >>> raise InputError("model.nir: node 'conv2\\x1b[2J': stride is 0, expected at least 1")
    Traceback (most recent call last):
    nrf.errors.InputError: model.nir: node 'conv2\\x1b[2J': stride is 0, expected at least 1
    """

    def __init__(self, text: object = "", rules: tuple[str, ...] = ()) -> None:
        self.rules = rules
        lines = str(text).split(INDENT)
        more = [f"and {len(lines) - LINES} more"] if len(lines) > LINES else []
        super().__init__(INDENT.join([printable(line) for line in lines[:LINES]] + more))


def printable(text: str, width: int = WIDTH) -> str:
    """One line that any terminal shows as it is: control codes spelt out, the middle of a long one left out.

    >>> printable("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\\\n'
    """
    if len(text) > width:
        text = f"{text[: width * 2 // 3]} ... {text[-width // 4 :]}"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown word: the nearest known one, and all there are.

    >>> did_you_mean("nettwork", ["name", "network"])
    "did you mean 'network'? known are name, network"
    """
    names = list(known)
    near = get_close_matches(word, names, n=1)
    return (f"did you mean '{near[0]}'? " if near else "") + f"known are {', '.join(names)}"
