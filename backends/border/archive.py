"""What programs and recordings have in common on disk: one `.npz` that NumPy alone can read.

header   JSON as bytes, with the version of the format
others   arrays, by name
"""

import json
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError
from nrf.files import atomic_write

DAMAGED = (  # what reading a file that is no such file, or a spoilt one, can raise
    OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
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
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header: Header = json.loads(arrays.pop("header").tobytes())
        found = header["version"]
    except DAMAGED as error:
        raise InputError(f"{path}: not a {kind} of nrf ({error})") from error
    if found != version:
        raise InputError(f"{path}: {kind} version {found}, this nrf reads {version}; {remedy}")
    return header, arrays
