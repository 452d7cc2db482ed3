"""The program file: what a chip would get, in one file that NumPy alone can read.

    header   JSON as bytes: format version, checksum, and the program with a name in the place of each array
    others   the arrays, by these names

A program is a frozen dataclass of numbers, names, arrays and more of its kind. It is written and read by its
type alone: reading checks the type of every field before anything is computed, and a function of the chip
checks what types cannot say. The checksum covers what a program computes, so that the same integers have the
same checksum wherever they came from.
"""

import hashlib
import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeVar, get_args, get_origin

import msgspec
import numpy as np
from numpy.typing import NDArray

from nrf.backends.border.archive import Arrays, Header, read_archive, write_archive
from nrf.backends.border.backend import Frames, Program
from nrf.errors import InputError
from nrf.lazy import sparse

VERSION = 6
NOT_COMPUTED = ("name", "lowered", "early")  # where a program came from, and how: not what it does
P = TypeVar("P")
Side = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]  # of a matrix


def pack(program: object) -> tuple[Header, Arrays]:
    """A program as plain values and arrays; `unpack` is the way back."""
    arrays: Arrays = {}

    def store(value: object) -> object:
        if isinstance(value, np.ndarray):
            name = str(len(arrays))
            arrays[name] = np.ascontiguousarray(value)
            return name
        if isinstance(value, np.generic):  # a NumPy number, as in a contract made by computing
            return value.item()
        if isinstance(value, sparse.csr_array):
            parts = {key: store(getattr(value, key)) for key in ("data", "indices", "indptr")}
            return {**parts, "shape": [int(size) for size in value.shape]}
        raise TypeError(f"{type(value).__name__} cannot be part of a program")

    plain: Header = msgspec.to_builtins(program, enc_hook=store)
    return plain, arrays


def unpack(kind: type[P], header: object, arrays: Arrays) -> P:
    """A program of a type from what `pack` gave; raises ValueError where something is not of its type."""

    def fetch(wanted: type, value: object) -> object:
        if (get_origin(wanted) or wanted) is np.ndarray:
            return _array(arrays, value, wanted)
        if not isinstance(value, dict):
            raise ValueError(f"expected a table for {wanted.__name__}")
        options: tuple[type, ...] = getattr(wanted, "KINDS", ())  # a base class lists what it may be
        for option in options:
            if getattr(option, "kind", "") == value.get("kind"):
                return msgspec.convert(value, option, dec_hook=fetch)
        if wanted is sparse.csr_array:
            data, indices, indptr = (_array(arrays, value[key]) for key in ("data", "indices", "indptr"))
            return _matrix(data, indices, indptr, value["shape"])
        raise ValueError(f"no {wanted.__name__} of kind {value.get('kind')!r}")

    return msgspec.convert(header, kind, dec_hook=fetch)


def _array(arrays: Arrays, name: object, wanted: type | None = None) -> NDArray[np.generic]:
    if not isinstance(name, str) or name not in arrays:
        raise ValueError(f"array {name!r} is missing")
    array = arrays[name]
    for part in get_args(wanted):
        kind: type = get_args(part)[0] if get_origin(part) is np.dtype else object
        if issubclass(kind, np.generic) and not issubclass(array.dtype.type, kind):  # and not Any
            raise ValueError(f"array {name} holds {array.dtype}, expected {kind.__name__}")
    return array


def _matrix(
    data: NDArray[np.generic], indices: NDArray[np.generic], indptr: NDArray[np.generic], shape: list[int]
) -> "sparse.csr_array":
    """A sparse matrix whose every entry lies within it: SciPy's own check asks nothing of an empty one."""
    rows, columns = msgspec.convert(shape, tuple[Side, Side])
    if {indices.dtype.str, indptr.dtype.str} - {"<i4", "<i8"} or indptr.shape != (rows + 1,):
        raise ValueError(f"a matrix {shape} has indices of {indices.dtype} and {indptr.dtype}{indptr.shape}")
    ends = indptr.astype(np.int64)
    if ends[0] != 0 or np.any(np.diff(ends) < 0) or not data.shape == indices.shape == (ends[-1],):
        raise ValueError(f"the rows of a matrix {shape} do not follow one another")
    if len(data) and not 0 <= indices.astype(np.int64).min() <= indices.astype(np.int64).max() < columns:
        raise ValueError(f"entries lie outside a matrix {shape}")
    return sparse.csr_array((data, indices, indptr), shape=(rows, columns))


def checksum(program: object) -> str:
    """SHA-256 over what a program computes, 16 hex digits."""
    header, arrays = pack(program)
    digest = hashlib.sha256()
    computed = {key: value for key, value in header.items() if key not in NOT_COMPUTED}
    digest.update(json.dumps(computed, sort_keys=True).encode())
    for name, array in arrays.items():
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


class StoredProgram:
    """What the programs of all chips have in common; each is a frozen dataclass with `eq=False, repr=False`.

    Programs are equal if they compute the same, whatever they were lowered from.
    """

    target: str

    @cached_property
    def checksum(self) -> str:
        """Over what the program computes, 16 hex digits."""
        return checksum(self)

    def save(self, path: str | Path) -> None:
        """Write one file that NumPy alone can read."""
        save_program(path, self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(for {self.target}, checksum {self.checksum})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.checksum == getattr(other, "checksum", "")

    def __hash__(self) -> int:
        return hash(self.checksum)


def save_program(path: str | Path, program: object) -> None:
    """Write a program with version and checksum."""
    header, arrays = pack(program)
    write_archive(path, {"version": VERSION, "checksum": checksum(program), "program": header}, arrays)


def read_program(path: str | Path) -> tuple[Header, Arrays]:
    """Header and arrays of a program file as they stand there; a damaged or foreign file is refused."""
    return read_archive(path, "program", VERSION, "lower again")


def load_program(path: str | Path, kind: type[P], check: Callable[[P], None]) -> P:
    """Read what `save_program` wrote; `check` raises InputError about what types cannot say."""
    header, arrays = read_program(path)
    try:
        program = unpack(kind, header["program"], arrays)
        check(program)
        same = header["checksum"] == checksum(program)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(f"{path}: not a program for this chip ({error}); lower again") from error
    if not same:
        raise InputError(f"{path}: checksum does not match, the file is damaged; lower again")
    return program


def target_of(path: str | Path) -> str:
    """Name of the chip that a program file is for."""
    program = read_program(path)[0].get("program")
    target = program.get("target") if isinstance(program, dict) else None
    if not isinstance(target, str):
        raise InputError(f"{path}: not a program of nrf (it names no target)")
    return target


def with_trailing_silence(frames: Frames, program: Program) -> Frames:
    """Frames of a clip that is read as a class, and then silence until a chip has answered all of them."""
    late = max(0, 0, *program.latencies.values())  # the host waits for the latest that it reads
    if program.contract.classes is None or not late:
        return frames
    return np.concatenate([frames, np.zeros((late, *frames.shape[1:]), frames.dtype)])
