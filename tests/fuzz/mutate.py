"""Files that are nearly right: what a stranger, a bad disk or a malicious hand makes of a good file.

Every mutation takes a random generator and gives bytes. Byte-wise ones know nothing; the others know the
container (JSON, TOML, ZIP with NumPy arrays, HDF5, safetensors) and change what is in it, so that the result
gets past the container's own checks.
"""

import io
import json
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import tomli_w

Rng = np.random.Generator
Arrays = dict[str, np.ndarray]
DTYPES = (
    "?", "i1", "u1", "<i2", "<u2", "<i4", ">i4", "<i8", "<u8", "<f2", "<f4", "<f8", ">f8", "<c16", "S3", "U3",
    "M8[s]", "V4", "<f4,<i4",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 7, 64, 255, 256, 2**15, 2**16, 10**6, 2**31 - 1, 2**31, -(2**31), 2**40, 2**53,
    2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 0.5, 1.5, -0.0, 1e-300, 5e-324, 1e38, 1e39, 1e300, -1e300,
    np.nan, np.inf, -np.inf,
)  # fmt: skip
ESCAPE = "\x1b[2J\x1b[31mred\x07 [bold]"
WORDS = (
    "",
    "x",
    "input",
    "output",
    "zero",
    "conv",
    "matrix",
    ESCAPE,
    "a" * 5000,
    "é",
    "\u202e",
    "a\nb",
    "../x",
    "0",
    "9" * 30,
)


def pick(rng: Rng, options: Any) -> Any:
    """One of them."""
    options = list(options)
    return options[int(rng.integers(len(options)))]


def damaged(rng: Rng, data: bytes) -> bytes:
    """Bytes changed, cut, repeated or moved, without knowing what they mean."""
    text = bytearray(data)
    for _ in range(int(rng.choice([1, 1, 1, 2, 4, 16]))):
        place, size = int(rng.integers(len(text) + 1)), int(rng.integers(1, 65))
        match int(rng.integers(9)):
            case 0 if len(text):
                text[place % len(text)] ^= 1 << int(rng.integers(8))
            case 1 if len(text):
                text[place % len(text)] = int(rng.choice([0, 1, 127, 128, 255, rng.integers(256)]))
            case 2:
                del text[place:]
            case 3:
                del text[place : place + size]
            case 4:
                text[place:place] = rng.bytes(size)
            case 5:
                text[place : place + size] = bytes(size)
            case 6:
                text[place : place + size] = rng.bytes(size)
            case 7:
                text[place:place] = text[place : place + size]
            case 8:
                width = int(rng.choice([2, 4, 8]))
                number = int(rng.choice([0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62])) % 2 ** (8 * width)
                text[place : place + width] = number.to_bytes(width, "little")
    return bytes(text)


def strange(rng: Rng) -> Any:
    """A value that hardly belongs anywhere."""
    match int(rng.integers(8)):
        case 0 | 1 | 2:
            return pick(rng, NUMBERS)
        case 3:
            return pick(rng, WORDS)
        case 4:
            return pick(
                rng, (None, True, False, [], {}, [[]], {"": 0}, [1, 2, 3], [2**62] * 3, {"kind": "conv"})
            )
        case 5:
            return [pick(rng, NUMBERS) for _ in range(int(rng.integers(1, 5)))]
        case 6:
            value: Any = 0
            for _ in range(int(rng.choice([3, 60, 200]))):
                value = [value] if rng.random() < 0.5 else {"a": value}
            return value
        case _:
            return {pick(rng, WORDS): pick(rng, NUMBERS)}


def nearby(rng: Rng, value: Any) -> Any:
    """A value of the same kind, if it has one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return pick(
            rng, (value + 1, value - 1, -value, value * 2, value / 2, value * 1000, float(value), str(value))
        )
    if isinstance(value, str):
        return pick(rng, (value + "x", value.upper(), value[::-1], value[1:], value * 100))
    if isinstance(value, list):
        return pick(
            rng, (value + value, value[1:], value[::-1], [value], [*value, strange(rng)], value[:1] * 50)
        )
    if isinstance(value, dict) and value:
        key = pick(rng, value)
        rest = {name: inner for name, inner in value.items() if name != key}
        return pick(rng, (rest, rest | {key + "x": value[key]}, value | {pick(rng, WORDS): strange(rng)}))
    return strange(rng)


def changed(rng: Rng, tree: Any) -> Any:
    """A tree of dictionaries and lists with one to three values changed."""
    tree = json.loads(json.dumps(tree))
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        holders = list(_holders(tree))
        if not holders:
            return strange(rng)
        holder, key = pick(rng, holders)
        match int(rng.integers(5)):
            case 0 | 1:
                holder[key] = strange(rng)
            case 2 | 3:
                holder[key] = nearby(rng, holder[key])
            case 4:
                other, there = pick(rng, holders)
                holder[key] = json.loads(json.dumps(other[there]))
    return tree


def _holders(tree: Any) -> Any:
    todo = [tree]
    while todo:
        value = todo.pop()
        inner = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, part in inner:
            yield value, key
            todo.append(part)


def array(rng: Rng, values: np.ndarray) -> np.ndarray:
    """An array of another type, shape or content."""
    with np.errstate(all="ignore"):
        match int(rng.integers(9)):
            case 0:
                try:
                    return values.astype(pick(rng, DTYPES))
                except (TypeError, ValueError):
                    return np.zeros(values.shape, pick(rng, DTYPES))
            case 1:
                single = values.ravel()[:1].reshape(()) if values.size else values
                shapes = values.ravel(), values[None], values.T, values[..., None], values.ravel()[:0]
                return pick(rng, (*shapes, single, np.repeat(values[None], 3, 0)))
            case 2:
                return np.concatenate([np.atleast_1d(values)] * 2)
            case 3:
                return np.atleast_1d(values)[: values.shape[0] // 2 if values.ndim else 0]
            case 4 | 5 | 6 if values.size and values.dtype.kind in "biuf":
                values = values.copy()
                for _ in range(int(rng.choice([1, 1, 3]))):
                    number = pick(rng, NUMBERS)
                    if values.dtype.kind == "f":
                        values.flat[int(rng.integers(values.size))] = number
                    elif values.dtype.kind == "b" or not abs(number) < 2**62:
                        values.flat[int(rng.integers(values.size))] ^= 1
                    else:
                        bits = 8 * values.dtype.itemsize
                        wrapped = (int(number) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
                        wrapped = wrapped % 2**bits if values.dtype.kind == "u" else wrapped
                        values.flat[int(rng.integers(values.size))] = wrapped
                return values
            case 7:
                return np.full(values.shape, pick(rng, (0, 1, -1, 100)), np.int64).astype(
                    values.dtype if values.dtype.kind in "iuf" else np.int64
                )
            case _:
                return np.full(
                    tuple(rng.integers(0, 9, int(rng.integers(0, 5)))), 1, pick(rng, ("i1", "<i4", "<f8"))
                )


def npy(values: np.ndarray, shape: str | None = None, descr: str | None = None) -> bytes:
    """An .npy file; with `shape` or `descr` its header says something else than is there."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, values, allow_pickle=True)
    data = buffer.getvalue()
    if shape is None and descr is None:
        return data
    descr, shape = descr or repr(values.dtype.str), shape or str(values.shape)
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n" + values.tobytes()


def archive(rng: Rng, arrays: Arrays) -> bytes:
    """A .npz file, now and then one whose ZIP or NumPy headers lie."""
    buffer, trick = io.BytesIO(), int(rng.integers(24))
    victim = pick(rng, arrays) if arrays else ""
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, values in arrays.items():
            data = npy(values)
            if name == victim:
                lies = (
                    "(1000000, 1000000)",
                    "(-1,)",
                    "(2,",
                    "(1e9,)",
                    "'x'",
                    "(" * 500,
                    "(9223372036854775807, 4)",
                    "None",
                )
                if trick == 0:
                    data = npy(values, shape=pick(rng, lies))
                elif trick == 1:
                    data = npy(
                        values,
                        descr=pick(rng, ("'|O'", "'<f99'", "[('a', '<f4')]", "'<U1000000000'", "None", "5")),
                    )
                elif trick == 2:
                    data = pick(
                        rng, (b"", b"\x93NUMPY", b"not an array", data[:20], npy(np.array([{"a": 1}, None])))
                    )
                elif trick == 3:
                    data = (
                        npy(np.zeros(int(rng.choice([10**6, 10**8])), np.uint8))
                        if rng.random() < 0.05
                        else data * 2
                    )
                elif trick == 4:
                    file.writestr(f"{name}.npy", data)  # twice
                elif trick == 5:
                    name = pick(rng, WORDS)
            file.writestr(f"{name}.npy", data)
        if trick == 6:
            for k in range(int(rng.choice([10, 300]))):
                file.writestr(f"more{k}.npy", b"")
    data = bytearray(buffer.getvalue())
    if trick == 7:  # the sizes in the directory, and the compression method
        place = data.find(b"PK\x01\x02") + int(rng.choice([8, 10, 16, 20, 24, 28, 42]))
        data[place : place + 2] = rng.bytes(2)
    return bytes(data)


@cache
def arrays_of(data: bytes) -> Arrays:
    """What a good .npz file holds."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def mutated_npz(rng: Rng, data: bytes, finish: Callable[[Any, Arrays], Any] | None = None) -> bytes:
    """A .npz file with arrays changed, and its JSON header if it has one; `finish` recomputes checksums."""
    arrays = dict(arrays_of(data))
    header = json.loads(arrays.pop("header").tobytes()) if "header" in arrays else None
    if header is not None and rng.random() < 0.65:
        header = changed(rng, header)
    if header is None or rng.random() < 0.5:
        for _ in range(int(rng.choice([1, 1, 2]))):
            name = pick(rng, arrays)
            match int(rng.integers(8)):
                case 0 if len(arrays) > 1:
                    del arrays[name]
                case 1:
                    arrays[name] = arrays[pick(rng, arrays)]
                case _:
                    arrays[name] = array(rng, arrays[name])
    if header is not None:
        if finish is not None:
            header = finish(header, arrays)
        text = json.dumps(header)
        if rng.random() < 0.01:
            text = pick(
                rng, ("[" * 100_000, '{"version": 1' + "0" * 5000 + "}", "nul", '"\\ud800"', "[]", "3")
            )
        arrays["header"] = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    return archive(rng, arrays)


def mutated_labels(rng: Rng, data: bytes) -> bytes:
    """Labels as text, or in NumPy's formats, with numbers changed."""
    if data[:2] == b"PK":
        return mutated_npz(rng, data)
    if data[:6] == b"\x93NUMPY":
        labels = array(rng, np.load(io.BytesIO(data)))
        shape = pick(rng, (None, None, None, "(1000000, 1000000)", "(-1,)", "(3000000000,)", "(" * 500))
        return npy(labels, shape, pick(rng, (None, None, None, "'|O'", "'<U1000000000'", "'<M8[s]'")))
    lines = data.splitlines()
    for _ in range(int(rng.choice([1, 1, 2]))):
        lines[int(rng.integers(len(lines)))] = str(strange(rng)).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def mutated_json(rng: Rng, data: bytes) -> bytes:
    """A JSON file with values changed."""
    if rng.random() < 0.02:
        return b"[" * 200_000 if rng.random() < 0.5 else b'{"a":' * 100_000
    return json.dumps(changed(rng, json.loads(data))).encode()


def mutated_toml(rng: Rng, data: bytes) -> bytes:
    """A TOML file with values changed."""
    import tomllib

    if rng.random() < 0.02:
        return data + pick(
            rng, (b"\nx = " + b"[" * 100_000, b"\n[" + b"a." * 50_000 + b"a]\n", b"\nx = 1" + b"0" * 10_000)
        )
    try:
        return tomli_w.dumps(_for_toml(changed(rng, tomllib.loads(data.decode())))).encode(
            "utf-8", "surrogatepass"
        )
    except (TypeError, ValueError, AttributeError, RecursionError):
        return damaged(rng, data)


def _for_toml(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _for_toml(inner) for key, inner in value.items() if inner is not None}
    return [_for_toml(inner) for inner in value if inner is not None] if isinstance(value, list) else value


def mutated_safetensors(rng: Rng, data: bytes) -> bytes:
    """A safetensors file with another header: tensors of other types, shapes and places, other metadata."""
    (size,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    if rng.random() < 0.6 and "__metadata__" in header:
        meta = header["__metadata__"]
        meta["nrf"] = json.dumps(changed(rng, json.loads(meta["nrf"])))
    else:
        header = changed(rng, header)
    if rng.random() < 0.2:
        body = bytearray(body)
        body[int(rng.integers(len(body))) :][:4] = b"\x00\x00\xc0\x7f"  # not a number
        place = 4 * int(rng.integers(len(body) // 4))
        body[place : place + 4] = rng.bytes(4)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(body)


def mutated_hdf5(rng: Rng, data: bytes) -> bytes:
    """An HDF5 file with datasets, links, types, attributes or storage that nobody expects."""
    with TemporaryDirectory(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder) / "file.h5"
        path.write_bytes(data)
        with h5py.File(path, "r+") as file:
            for _ in range(int(rng.choice([1, 1, 2]))):
                names: list[str] = []
                file.visit(names.append)
                with suppress(TypeError, ValueError, OSError, KeyError, RuntimeError, OverflowError):
                    _change_object(rng, file, pick(rng, names))  # not every change is possible everywhere
        return path.read_bytes()


def _change_object(rng: Rng, file: h5py.File, name: str) -> None:
    node, values = file[name], None
    if isinstance(node, h5py.Dataset) and (node.size or 0) < 10**6:  # not one that was made huge before
        values = node[()]
    trick = int(rng.integers(20))
    if trick == 0:
        file.move(name, f"{name}{pick(rng, ('x', ESCAPE, 'é', '_' * 300))}")
        return
    if trick == 1:
        node.attrs[pick(rng, ("sensor", "start", "stop", "x"))] = pick(rng, NUMBERS[:20])
        return
    if trick == 2:
        group = file
        for _ in range(int(rng.choice([5, 40, 300]))):
            group = group.create_group("a")
        return
    if trick == 3 and isinstance(node, h5py.Group):
        node[pick(rng, ("loop", "weight", "t"))] = pick(rng, (file, node, file[name].parent))
        return
    if trick == 4:
        node.parent.id.links.create_hard(b"\xff\xfe", node.parent.id, Path(name).name.encode())
        return
    del file[name]
    if trick == 5:
        return
    if trick == 6:
        file[name] = pick(
            rng,
            (h5py.SoftLink("/"), h5py.SoftLink(f"/{name}"), h5py.SoftLink("/nowhere"), h5py.SoftLink(name)),
        )
    elif trick == 7:
        file[name] = h5py.ExternalLink(
            pick(rng, ("/etc/passwd", file.filename, "/dev/zero", "nothing.h5")), "/"
        )
    elif trick == 8:
        file[name] = np.dtype(pick(rng, ("<f8", "S5")))
    elif trick == 9:
        shape = pick(rng, ((10**9,), (10**6, 10**6), (2**40,), (4, 4), (0,), (10**12,)))
        file.create_dataset(
            name, shape, pick(rng, ("<f4", "i1", "<i8")), chunks=tuple(min(n, 64) or 1 for n in shape)
        )
    elif trick == 10:
        file.create_dataset(
            name, (16,), "<i8", external=[(pick(rng, ("/etc/passwd", "/dev/zero", "nothing")), 0, 128)]
        )
    elif trick == 11:
        layout = h5py.VirtualLayout((8,), "<i8")
        layout[:] = h5py.VirtualSource(pick(rng, (".", "/etc/passwd")), "x", (8,))
        file.create_virtual_dataset(name, layout)
    elif trick == 12:
        kind = pick(
            rng,
            (
                h5py.string_dtype(),
                h5py.vlen_dtype(np.int32),
                h5py.ref_dtype,
                h5py.special_dtype(enum=("i1", {"a": 1})),
            ),
        )
        file.create_dataset(name, pick(rng, ((), (3,))), kind)
    elif trick == 13:
        file.create_group(name)
    elif trick == 14:
        file[name] = pick(
            rng,
            (
                ESCAPE,
                "Conv2d",
                "NIRGraph",
                "",
                b"\xff\xfe",
                "a" * 10_000,
                np.nan,
                [],
                h5py.Empty("f"),
                "{}",
                "[" * 10_000,
            ),
        )
    elif trick == 15:
        file[name] = strange_number(rng)
    elif isinstance(values, np.ndarray):
        file[name] = array(rng, values) if values.dtype.kind in "biuf" else values[::-1]
    elif isinstance(values, np.generic | int | float):
        file[name] = pick(rng, NUMBERS[:20])
    else:
        file[name] = pick(rng, WORDS)


def strange_number(rng: Rng) -> Any:
    """A number or a few, as NumPy takes them."""
    numbers = [float(pick(rng, NUMBERS)) for _ in range(int(rng.integers(1, 4)))]
    return numbers[0] if len(numbers) == 1 else np.array(numbers)


def words_swapped(rng: Rng, data: bytes) -> bytes:
    """A camera's file with its header changed, or cut, repeated or filled in the middle of a word."""
    end = data.rfind(b"%", 0, 400)
    end = data.find(b"\n", end) + 1 if end >= 0 else 0
    header, body = data[:end], data[end:]
    match int(rng.integers(7)):
        case 0:
            lines = header.splitlines(keepends=True)
            rng.shuffle(lines)
            header = b"".join(lines[: int(rng.integers(len(lines) + 1))])
        case 1:
            header = header.replace(
                *pick(
                    rng,
                    (
                        (b"2", b"3"),
                        (b"3", b"2"),
                        (b"geometry", b"Width"),
                        (b"16", b"9" * 30),
                        (b"%", b"% "),
                        (b"\n", b"\r\n"),
                        (b"evt", ESCAPE.encode()),
                    ),
                )
            )
        case 2:
            body = body[: int(rng.integers(len(body) + 1))]
        case 3:
            body = body * int(rng.choice([2, 50]))
        case 4:
            body = rng.bytes(int(rng.integers(200)))
        case 5:
            place = int(rng.integers(len(body) + 1)) // 4 * 4
            body = body[:place] + rng.bytes(4) * int(rng.integers(1, 20)) + body[place:]
        case 6:
            header = header + b"% " + pick(rng, WORDS).encode() + b"\n"
    return header + body
