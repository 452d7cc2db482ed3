"""The one exception that a user is meant to see."""


class InputError(Exception):
    """The input or the call is wrong. Printed as one line without traceback, exit code 2.

    The text names the file, node or key, says what was found and what was expected, and what to do:

    >>> raise InputError("model.nir: node 'conv2': stride is 0, expected at least 1")
    Traceback (most recent call last):
    nrf.errors.InputError: model.nir: node 'conv2': stride is 0, expected at least 1
    """
