"""The program file: what a chip would get, in one file that NumPy alone can read.

    header   JSON as bytes: format version, target, contract, checksum, and the backend's own description
    others   integer arrays, named by the backend

The checksum covers the header and every array, so that a recording says which program made it.
"""

import hashlib
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError
from nrf.files import atomic_write

VERSION = 2
DAMAGED = (  # what reading a file that is no such file, or a spoilt one, can raise
    OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
Arrays = dict[str, NDArray[Any]]


def checksum(header: dict[str, Any], arrays: Arrays) -> str:
    """SHA-256 over header (without the checksum itself) and arrays, 16 hex digits."""
    digest = hashlib.sha256()
    plain = {key: value for key, value in header.items() if key != "checksum"}
    digest.update(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def save_program(path: str | Path, header: dict[str, Any], arrays: Arrays) -> None:
    """Write header and arrays; `header` must name the `target`. Version and checksum are added."""
    header = {**header, "version": VERSION}
    header["checksum"] = checksum(header, arrays)
    with atomic_write(path) as part, part.open("wb") as file:
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        np.savez_compressed(file, header=text, **arrays)  # type: ignore[arg-type]


def load_program(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a program file; a damaged or foreign file is refused."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
            header = json.loads(arrays.pop("header").tobytes())
    except DAMAGED as error:
        raise InputError(f"{path}: not a program of nrf ({error})") from error
    if header.get("version") != VERSION:
        raise InputError(
            f"{path}: program version {header.get('version')}, this nrf reads {VERSION}; lower again"
        )
    if header.get("checksum") != checksum(header, arrays):
        raise InputError(f"{path}: checksum does not match, the file is damaged; lower again")
    return header, arrays
