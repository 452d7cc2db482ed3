"""What strangers' files are made of: NumPy arrays in a ZIP, trees in HDF5, tables in JSON and TOML.

Each container is checked against what is written here before anything of its content is taken, so that
whoever reads a format on top of it sees arrays of plain numbers, whose sizes are true, and nothing else. The
limits are those of `nrf.files`.

    .npz    a ZIP of .npy members, names unique; each a header as NumPy writes it with a type of `PLAIN`, then
            exactly the bytes that its shape says
    HDF5    groups and datasets that stand in this very file, each reached by one name: no links, virtual or
            external data, no references; numbers, booleans, text, or records of numbers; no chunk is missing
"""

import json
import mmap
import re
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import LARGE, compact
from nrf.errors import InputError
from nrf.files import DEPTH, MEMBERS, input_file, require_memory

Arrays = dict[str, NDArray[Any]]
TEXT = np.dtype([("length", "<u4"), ("heap", "<u8"), ("number", "<u4")])  # a text of any length in HDF5
Tree = dict[str, Any]  # groups are dictionaries, text is str, all else arrays and numbers of NumPy
PLAIN = r"[<>|=]?(?:b1|[iu][1248]|f[248]|c8|c16|[mM]8(?:\[\w+\])?|[SU]\d{1,6})"
HEADER = re.compile(
    rb"\x93NUMPY(?:\x01\x00..|[\x02\x03]\x00....)"
    rb"\{'descr': ?'("
    + PLAIN.encode()
    + rb")', ?'fortran_order': ?(True|False), ?'shape': ?\(([\d, ]{0,400})\),? ?\} *\n",
    re.DOTALL,
)
DOTTED = re.compile(  # a key of many parts: a.'b'."c" ...
    rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEPTH}}}"""
)
PIECE = 1 << 20  # bytes that are unpacked at a time
SPOILT = (  # what the libraries below raise about bytes that do not fit together
    OSError, ValueError, KeyError, RuntimeError, EOFError, NotImplementedError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


def read_arrays(path: str | Path, what: str = "readable .npz file") -> Arrays:
    """All arrays of a .npz file; `what` it should be is for the error.

    >>> read_arrays("clip.npz")["t"].dtype  # doctest: +SKIP
    dtype('int64')
    """
    path = input_file(path)
    try:
        if (count := _members(path)) > MEMBERS:
            raise InputError(f"{path}: an archive of {count} files, expected at most {MEMBERS}")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len({member.filename for member in members}) < len(members):
                raise InputError(f"{path}: two of its arrays have the same name")
            require_memory(path, sum(member.file_size for member in members), "its arrays")
            arrays = {}
            for member in members:
                with archive.open(member) as stream:
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = _read_array(stream, member.file_size, member.filename)
            return arrays
    except SPOILT as error:
        raise InputError(f"{path}: not a {what} ({error})") from error


def shape_in(path: str | Path, name: str) -> tuple[int, ...] | None:
    """The shape that an array of a .npz file states, by its header alone; None where there is no such array.

    >>> shape_in("clip.npz", "frames")  # doctest: +SKIP
    (20, 2, 32, 32)
    """
    try:
        if _members(input_file(path)) > MEMBERS:
            return None
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
            header = HEADER.fullmatch(_start(stream))
    except (*SPOILT, InputError):
        return None
    return None if header is None else _shape(header)


def read_array(path: str | Path) -> NDArray[Any]:
    """The array of a .npy file."""
    path = input_file(path)
    size = path.stat().st_size
    require_memory(path, size, "its array")
    try:
        with path.open("rb") as stream:
            return _read_array(stream, size, path.name)
    except SPOILT as error:
        raise InputError(f"{path}: not a readable .npy file ({error})") from error


def _read_array(stream: IO[bytes], size: int, name: str) -> NDArray[Any]:
    start = _start(stream)
    header = HEADER.fullmatch(start)
    if header is None:
        raise ValueError(f"member {name} is no array of plain numbers")
    shape = _shape(header)
    dtype, order = np.dtype(header[1].decode()), "F" if header[2] == b"True" else "C"
    wanted, there = prod(shape) * dtype.itemsize, size - len(start)
    if len(shape) > DEPTH or wanted != there:
        raise ValueError(f"array {name} says {shape} of {dtype} but has {there} bytes")
    content = bytearray(wanted)
    for begin in range(0, wanted, PIECE):
        content[begin : begin + PIECE] = stream.read(min(PIECE, wanted - begin))
    if len(content) != wanted or stream.read(1):  # reading to the end also compares the ZIP's checksum
        raise ValueError(f"array {name} is cut off")
    return np.frombuffer(content, dtype).reshape(shape, order=order)  # type: ignore[call-overload, no-any-return]


def _start(stream: IO[bytes]) -> bytes:
    """An array's header, whose length has 2 or 4 bytes."""
    start = stream.read(10)
    start += stream.read(2) if start[6:7] != b"\x01" else b""
    return start + stream.read(min(int.from_bytes(start[8:], "little"), 2000))


def _shape(header: re.Match[bytes]) -> tuple[int, ...]:
    return tuple(int(side) for side in header[3].replace(b",", b" ").split())


def _members(path: Path) -> int:
    """How many entries the directory of a ZIP may have, counted without reading it."""
    count, rest = 0, b""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            count += (rest + piece).count(b"PK\x01\x02")
            rest = piece[-3:]
    return count


def read_hdf5(path: str | Path, what: str = "readable HDF5 file") -> tuple[Tree, dict[str, Tree]]:
    """Everything in an HDF5 file, and the numbers among the attributes of each object by its whole name.

    >>> tree, attributes = read_hdf5("model.nir")  # doctest: +SKIP
    >>> tree["node"]["type"]  # doctest: +SKIP
    'NIRGraph'
    """
    import h5py

    path = input_file(path)
    try:
        _sound_heaps(path)
        with h5py.File(path, "r") as file:
            walk = _Walk(path)
            return walk.group(file, ()), walk.attributes
    except (*SPOILT, TypeError, AttributeError, SystemError) as error:  # of h5py, in many ways
        raise InputError(f"{path}: not a {what} ({error})") from error


def _sound_heaps(path: Path) -> None:
    """Refuse a heap of texts with free space of no size, in which HDF5 2.0 turns for ever.

    A heap is "GCOL", a version, its size, then objects: 16 bytes that end in its size, then its content.
    """
    with path.open("rb") as file:
        if not file.read(1):
            return  # an empty file cannot be mapped
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            heap = -1
            while (heap := data.find(b"GCOL\x01\0\0\0", heap + 1)) >= 0:
                place, end = (
                    heap + 16,
                    min(heap + int.from_bytes(data[heap + 8 : heap + 16], "little"), len(data)),
                )
                while place + 16 <= end:
                    number = int.from_bytes(data[place : place + 2], "little")
                    size = int.from_bytes(data[place + 8 : place + 16], "little")
                    if not number and size < 16:
                        raise ValueError("a heap of texts is damaged")
                    place += 16 + (size + 7) // 8 * 8 if number else size


def _plain(value: Any) -> Any:
    """A text as str; arrays and numbers as they are."""
    return value.decode() if isinstance(value, bytes) else value


class _Walk:
    """A walk through a file, with what it has met so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, path.stat().st_size
        self.met: set[object] = set()
        self.bytes = 0
        self.attributes: dict[str, Tree] = {}

    def group(self, group: Any, place: tuple[str, ...]) -> Tree:
        import h5py

        tree: Tree = {}
        self._attributes(group, place)
        for name in group:
            inside = (*place, name)
            where = f"{self.path}: '{'/'.join(inside)}'"
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise InputError(f"{where} is a link, expected the data itself")
            if not name.isprintable():
                raise InputError(f"{where}: the name has control characters; rename it")
            node = group[name]
            info = h5py.h5o.get_info(node.id)
            if (info.fileno, info.addr) in self.met:
                raise InputError(f"{where} is there under another name as well; keep one")
            self.met.add((info.fileno, info.addr))
            if len(inside) > DEPTH or len(self.met) > MEMBERS:
                raise InputError(f"{where}: more than {DEPTH} groups deep, or more than {MEMBERS} objects")
            if isinstance(node, h5py.Group):
                tree[name] = self.group(node, inside)
            elif isinstance(node, h5py.Dataset):
                self._attributes(node, inside)
                tree[name] = self.dataset(node, where)
            else:
                raise InputError(f"{where} is a type without data, expected a dataset")
        return tree

    def dataset(self, node: Any, where: str) -> Any:
        import h5py

        if node.shape is None or node.external or node.is_virtual:
            raise InputError(f"{where}: its data are not in this file")
        kind, text = node.dtype, h5py.check_string_dtype(node.dtype)
        fields = [kind[name] for name in kind.names] if kind.names else [kind]
        if text is None and not all(field.kind in "biufc" and field.subdtype is None for field in fields):
            raise InputError(f"{where}: holds {kind}, expected numbers or text")
        count = prod(node.shape)
        self.bytes += count * kind.itemsize
        require_memory(self.path, self.bytes + prod(node.chunks or ()) * kind.itemsize, "its arrays")
        if node.chunks:
            chunks = prod(-(-side // chunk) for side, chunk in zip(node.shape, node.chunks, strict=True))
            if (there := node.id.get_num_chunks()) != chunks:
                raise InputError(f"{where}: {there} of its {chunks} chunks are there; the file is damaged")
        elif count and not node.id.get_storage_size():
            raise InputError(f"{where}: has the shape {node.shape} but no data")
        if text is not None and text.length is None:
            return self.texts(node, count)
        return compact(node[()]) if count > LARGE and not kind.names else _plain(node[()])

    def texts(self, node: Any, count: int) -> Any:
        """A text, or an array of them, read a few at a time: each may be as long as the file."""
        self._sound_lengths(node, count)
        if not node.shape:
            return _plain(node[()])
        piece = max(1, PIECE // self.size)
        if count > 4 * MEMBERS:
            raise InputError(f"{self.path}: {count} texts, expected at most {4 * MEMBERS}")
        texts: list[str] = []
        rows = node.shape[0]
        for row in range(0, rows, piece):
            part = [text.decode() for text in node[row : row + piece].ravel().tolist()]
            self.bytes += sum(map(len, part))
            require_memory(self.path, self.bytes, "its texts")
            texts += part
        return np.array(texts, object).reshape(node.shape)

    def _sound_lengths(self, node: Any, count: int) -> None:
        """Refuse a text that says it is longer than the file: HDF5 takes the memory before it looks."""
        if (place := node.id.get_offset()) is None:  # in chunks, or empty
            return
        with self.path.open("rb") as file:
            file.seek(place)
            lengths = np.frombuffer(file.read(TEXT.itemsize * count), TEXT)["length"]
        if lengths.max(initial=0) > self.size:
            raise InputError(f"{self.path}: a text of {lengths.max():,} bytes, more than the file has")

    def _attributes(self, node: Any, place: tuple[str, ...]) -> None:
        """Those of a few numbers; of others only that they are there."""
        found = {}
        for name in node.attrs:
            entry = node.attrs.get_id(name)
            few = entry.dtype.kind in "biuf" and entry.shape is not None and prod(entry.shape) <= DEPTH
            found[name] = node.attrs[name] if few else str(entry.dtype)
        self.attributes["/".join(place)] = found


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says; ValueError if it is none, is nested too deeply or spells half a character."""
    text = text if isinstance(text, str) else text.decode()
    content = _shallow(text, json.loads)
    if "\\ud" in text.lower():
        json.dumps(content, ensure_ascii=False).encode()  # a half would fail wherever it is shown or written
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text; ValueError if it is none, or nested too deeply."""
    if DOTTED.search(text):  # for which tomllib takes the square of their number
        raise ValueError("nested too deeply")
    tables: dict[str, Any] = _shallow(text, tomllib.loads)
    return tables


def _shallow(text: Any, parse: Callable[[Any], Any]) -> Any:
    try:
        content = parse(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level, depth = [content], 0
    while level := [
        inner
        for value in level
        if isinstance(value, dict | list)
        for inner in (value.values() if isinstance(value, dict) else value)
    ]:
        depth += 1
        if depth > DEPTH:
            raise ValueError("nested too deeply")
    return content
