"""What programs and recordings have in common on disk: one `.npz` that NumPy alone can read.

header   JSON as bytes, with the version of the format
others   arrays, by name
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nrf.containers import parse_json, read_arrays
from nrf.errors import InputError
from nrf.files import atomic_write

Arrays = dict[str, NDArray[np.generic]]
Header = dict[str, object]  # what JSON can say


def write_archive(path: str | Path, header: Header, arrays: Arrays) -> None:
    """Write all of it, or nothing."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with atomic_write(path) as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, header=text, **arrays)


def read_archive(path: str | Path, kind: str, version: int, remedy: str) -> tuple[Header, Arrays]:
    """Header and arrays as they stand there; a damaged or foreign file, or another version, is refused."""
    try:
        arrays: Arrays = read_arrays(path, f"{kind} of nrf")
        header = parse_json(arrays.pop("header").tobytes())
        found = header["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a {kind} of nrf ({error})") from error
    if found != version:
        raise InputError(f"{path}: {kind} version {found}, this nrf reads {version}; {remedy}")
    return header, arrays
