"""What programs and recordings have in common on disk: one `.npz` that NumPy alone can read.

header   JSON as bytes, with the version of the format
others   arrays, by name
"""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from nrf.containers import parse_json, read_arrays
from nrf.errors import InputError
from nrf.files import atomic_write

Arrays = dict[str, NDArray[np.generic]]
Header = dict[str, object]  # what JSON can say
LEVEL = 1  # of compression: more takes much longer and saves little
HELD = 1 << 26  # bytes of an array that are kept in memory before they go to a file of their own


class Growing:
    """An array that grows along its first axis; what is more than `HELD` waits on disk."""

    def __init__(self) -> None:
        self.rows, self.length = tempfile.SpooledTemporaryFile(HELD), 0  # noqa: SIM115

    def append(self, values: NDArray[np.generic]) -> None:
        """More rows, of the type and shape of the first ones."""
        self.dtype, self.shape = values.dtype, values.shape[1:]
        self.rows.write(values.tobytes())
        self.length += len(values)

    def write(self, file: IO[bytes]) -> None:
        """All rows, as `.npy`."""
        shape = self.length, *self.shape
        about = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(file, about)
        self.rows.seek(0)
        shutil.copyfileobj(self.rows, file, 1 << 20)
        self.rows.close()


def write_archive(
    path: str | Path, header: Header, arrays: Mapping[str, NDArray[np.generic] | Growing]
) -> None:
    """Write all of it, or nothing."""
    with (
        atomic_write(path) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as file,
    ):
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        for name, values in {"header": text, **arrays}.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                if isinstance(values, Growing):
                    values.write(member)
                else:
                    npy.write_array(member, values, allow_pickle=False)


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
