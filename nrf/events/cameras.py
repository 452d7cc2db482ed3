"""Files as event cameras write them.

    .raw     Prophesee EVT2 and EVT3; written as EVT2
    .dat     Prophesee DAT
    .aedat4  iniVation: read by aedat, written by dv-processing, the library of the camera's maker

Prophesee's encodings are decoded here, in pieces of whole words, so that no file can make a decoder wait for
more than there is. expelliarmus, which the tests compare with, waits for ever on some that are cut off, and
stretches the 8.8 ms of its own EVT3 sample recording to 53.9 ms: it adds 4096 us whenever the low half of the
time is smaller than before, also when the high half has moved on. Columns, rows and polarities of all its
219,596 events agree.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.arrays import Int64s
from nrf.errors import InputError
from nrf.events.types import BYTES, COLUMNS, DTYPE, Content, Events
from nrf.files import require_memory

PIECE = 1 << 20  # words that are decoded at a time
HEADER = 1 << 16  # bytes of a header at most
LARGEST = 255  # times that LZ4 can make smaller


def _library(name: str, path: Path) -> ModuleType:
    try:
        return __import__(name)
    except ImportError as error:
        raise InputError(
            f"{path}: this format needs {name.replace('_', '-')}; install it with pip install 'nrf[formats]'"
        ) from error


def _header(path: Path) -> tuple[str, int]:
    """The lines that start with %, up to "% end" if that is there, and how many bytes they have."""
    with path.open("rb") as file:
        lines = re.match(rb"(%(?! end)[^\n]*\n?)*(% end[^\n]*\n?)?", file.read(HEADER))
    return (lines[0].decode("ascii", "replace"), lines.end()) if lines else ("", 0)


def _content(parts: Iterator[NDArray[Any]], path: Path, header: str) -> Content:
    """The columns of events, and the sensor in one of the three ways that headers have.

    A camera's clock does not start with the recording: time counts from the first event.
    """
    pieces, count = [np.empty(0, DTYPE)], 0
    for part in parts:
        count += len(part)
        require_memory(path, count * BYTES, f"its {count:,} events and more")
        pieces.append(part)
    events = np.concatenate(pieces)
    if not count:
        raise InputError(f"{path}: holds no events")
    about: dict[str, Any] = {"start": events["t"][0]}
    sizes = {
        name: re.search(rf"{name}[ =](\d{{1,6}})\b", header, re.IGNORECASE) for name in ("height", "width")
    }
    if geometry := re.search(r"geometry (\d{1,6})x(\d{1,6})\b", header):
        about["sensor"] = int(geometry[2]), int(geometry[1])
    elif sizes["height"] and sizes["width"]:
        about["sensor"] = int(sizes["height"][1]), int(sizes["width"][1])
    return {name: events[name] for name in COLUMNS}, about


def _words(path: Path, start: int, dtype: str) -> Iterator[NDArray[Any]]:
    """The words behind the header in pieces; a file that ends within one is cut off."""
    size = np.dtype(dtype).itemsize
    if rest := (path.stat().st_size - start) % size:
        raise InputError(f"{path}: ends {rest} bytes into a word of {size}, so it is cut off; copy it again")
    with path.open("rb") as file:
        file.seek(start)
        while data := file.read(PIECE * size):
            yield np.frombuffer(data, dtype)


def _events(t: Int64s, x: NDArray[Any], y: NDArray[Any], p: NDArray[Any]) -> NDArray[Any]:
    events = np.empty(len(t), DTYPE)
    events["t"], events["x"], events["y"], events["p"] = t, x, y, p
    return events


def read_raw(path: Path) -> Content:
    """Prophesee RAW: the header says which encoding."""
    header, end = _header(path)
    match = re.search(r"evt ?(\d)", header, re.IGNORECASE)
    if match is None:
        raise InputError(f"{path}: not a Prophesee RAW file, the header does not name EVT2 or EVT3")
    if match[1] not in "23":
        raise InputError(f"{path}: encoding EVT{match[1]} is not known; convert it to EVT2 or EVT3")
    evt2 = match[1] == "2"
    words = _words(path, end, "<u4" if evt2 else "<u2")
    return _content(decode_evt2(words) if evt2 else decode_evt3(words), path, header)


def decode_evt2(pieces: Iterator[NDArray[np.uint32]]) -> Iterator[NDArray[Any]]:
    """Events from EVT2 words: 4 bits of type, 28 of content.

    0, 1 an event, darker or brighter (low 6 bits of the time in microseconds, column, row); 8 the time's
    high 28 bits.
    """
    high = turns = np.int64(0)
    for words in pieces:
        kind, content = words >> 28, (words & 0xFFFFFFF).astype(np.int64)
        times = np.concatenate([[high], content[kind == 8]])
        # 34 bits wrap in 4.8 hours
        wraps = turns + np.concatenate([[0], np.cumsum(np.diff(times) < -(1 << 27))])
        latest = ((wraps << 28) + times)[np.cumsum(kind == 8)]
        high, turns, fired = times[-1], wraps[-1], kind <= 1
        content = content[fired]
        t = (latest[fired] << 6) + (content >> 22)
        yield _events(t, content >> 11 & 0x7FF, content & 0x7FF, kind[fired])


def decode_evt3(pieces: Iterator[NDArray[np.uint16]]) -> Iterator[NDArray[Any]]:
    """Events from EVT3 words: 4 bits of type, 12 of content, and every word changes one part of the state.

    0 row; 2 one event (polarity, column); 3 polarity and base column of a vector; 4, 5 which of the
    next 12 or 8 columns fired; 6 low and 8 high 12 bits of the time in microseconds.
    """
    # words that say what the pieces before left
    state = np.array([0x8000, 0x6000, 0x0000, 0x3000], np.uint16)
    turns, reached = 0, 0  # wraps of the time, columns that vectors have passed since their base
    for words in pieces:
        words = np.concatenate([state, words])
        kind, content = words >> 12, (words & 0xFFF).astype(np.int64)
        index = np.arange(len(words))

        def latest(of: int, value: Int64s, kind: NDArray[Any] = kind, index: Int64s = index) -> Int64s:
            """At every word, the value of the last word of that type so far."""
            return value[np.maximum.accumulate(np.where(kind == of, index, 0))]

        high = content[kind == 8]
        wraps = turns + np.concatenate([[0], np.cumsum(np.diff(high) < -2048)])  # 24 bits wrap in 16.8 s
        unwrapped = np.zeros(len(words), np.int64)
        unwrapped[kind == 8] = (wraps << 12) + high
        time = (latest(8, unwrapped) << 12) + latest(6, content)
        row = latest(0, content & 0x7FF)

        width = np.select([kind == 4, kind == 5], [12, 8], 0)
        travelled = np.cumsum(width) - width
        travelled[4:] += reached
        vector_column = latest(3, content & 0x7FF) + travelled - latest(3, np.where(index < 4, 0, travelled))
        vector_polarity = latest(3, content >> 11)

        vectors = np.flatnonzero(width)
        at, bit = np.nonzero(
            (words[vectors, None] >> np.arange(12, dtype=np.uint16) & 1)
            * (np.arange(12) < width[vectors, None])
        )
        at, single = vectors[at], index[kind == 2]
        source = np.concatenate([single, at])
        column = np.concatenate([content[single] & 0x7FF, vector_column[at] + bit])
        polarity = np.concatenate([content[single] >> 11, vector_polarity[at]])
        order = np.argsort(source, kind="stable")
        source = source[order]
        yield _events(time[source], np.minimum(column[order], 0xFFFF), row[source], polarity[order])
        last = {int(k): words[kind == k][-1] for k in (8, 6, 0, 3)}
        state, turns = np.array(list(last.values()), np.uint16), int(wraps[-1])
        reached = int(vector_column[-1] + width[-1] - (int(last[3]) & 0x7FF))


def read_dat(path: Path) -> Content:
    """Prophesee DAT: behind the header two bytes, kind and size of an event, then a time and a word for each.

    A word holds 14 bits of column, 14 of row, 4 of polarity.
    """
    header, end = _header(path)
    with path.open("rb") as file:
        file.seek(end)
        start = file.read(2)
    if start[1:] not in (b"", b"\x08"):
        raise InputError(f"{path}: not a DAT file, events of {start[1]} bytes; expected 8")
    return _content(_decode_dat(_words(path, end + len(start), "<u8")), path, header)


def _decode_dat(pieces: Iterator[NDArray[np.uint64]]) -> Iterator[NDArray[Any]]:
    last, turns = np.int64(0), np.int64(0)
    for words in pieces:
        times = np.concatenate([[last], (words & 0xFFFFFFFF).astype(np.int64)])
        wraps = turns + np.cumsum(np.diff(times) < -(1 << 31))  # 32 bits wrap in 71 minutes
        word = (words >> 32).astype(np.int64)
        last, turns = times[-1], wraps[-1]
        yield _events((wraps << 32) + times[1:], word & 0x3FFF, word >> 14 & 0x3FFF, word >> 28)


def write_raw(path: Path, events: Events) -> None:
    """Prophesee RAW, EVT2."""
    t, x, y, p = _fitting(path, events, "EVT2", 1 << 34, 2048)
    high = t >> 6
    new = np.diff(high, prepend=-1) != 0  # a word with the time comes before these events
    words = np.empty(len(t) + int(new.sum()), "<u4")
    place = np.arange(len(t)) + np.cumsum(new)
    words[place] = p << 28 | (t & 0x3F) << 22 | x << 11 | y
    words[place[new] - 1] = 8 << 28 | high[new]
    rows, columns = events.sensor
    path.write_bytes(f"% evt 2.0\n% geometry {columns}x{rows}\n% end\n".encode() + words.tobytes())


def write_dat(path: Path, events: Events) -> None:
    """Prophesee DAT."""
    t, x, y, p = _fitting(path, events, "DAT", 1 << 32, 1 << 14)
    words = np.stack([t, p << 28 | y << 14 | x], axis=1).astype("<u4")
    rows, columns = events.sensor
    header = f"% Data file containing CD events.\n% Version 2\n% Height {rows}\n% Width {columns}\n"
    path.write_bytes(header.encode() + b"\x0c\x08" + words.tobytes())


def _fitting(path: Path, events: Events, format: str, end: int, side: int) -> list[Int64s]:
    """The columns, if a format can hold them."""
    if len(events) == 0:
        raise InputError(f"{path}: a {format} file cannot be without events")
    t, x, y, p = (events.data[name].astype(np.int64) for name in COLUMNS)
    if t[0] < 0 or t[-1] >= end or max(events.sensor) > side:
        limits = f"times below 2^{end.bit_length() - 1} us and sensors up to {side}x{side}"
        raise InputError(f"{path}: {format} holds {limits}")
    return [t, x, y, p]


def read_aedat4(path: Path) -> Content:
    """iniVation AEDAT4: the first stream of events."""
    aedat = _library("aedat", path)
    try:
        _whole_packets(path)
        recording = aedat.Decoder(path)
        streams = {number: s for number, s in recording.id_to_stream().items() if s["type"] == "events"}
        if not streams:
            raise InputError(f"{path}: holds no stream of events")
        first = min(streams)
        parts = (packet["events"] for packet in recording if packet["stream_id"] == first)
        columns, about = _content((_events(e["t"], e["x"], e["y"], e["on"]) for e in parts), path, "")
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a readable AEDAT4 file ({error})") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how Rust says that an index is out of range
            raise
        raise InputError(f"{path}: not a readable AEDAT4 file (its packets are damaged)") from error
    sizes = streams[first]
    return columns, {**about, "sensor": (sizes["height"], sizes["width"])}


def _whole_packets(path: Path) -> None:
    """Refuse a file whose packets are cut off, or say that they are larger than it is.

    "#!AER-DAT4.0\\r\\n", a header after its size, packets (stream, size, so many bytes), a table of them.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        magic, more = file.read(14), file.read(4)
        place = 18 + int.from_bytes(more, "little")
        if magic != b"#!AER-DAT4.0\r\n" or place > size:
            raise ValueError("no AEDAT4, or cut off within its header")
        table = _table_position(file.read(place - 18))
        if table > size or -1 < table < place:
            raise InputError(f"{path}: {size:,} bytes, but its table is at byte {table:,}; it is cut off")
        end = table if table >= 0 else size  # a camera that was not stopped writes no table
        while place < end:
            file.seek(place)
            head = file.read(8)
            length = struct.unpack("<i", head[4:])[0] if len(head) == 8 else -1
            if length < 0 or place + 8 + length > end:
                raise InputError(f"{path}: cut off or damaged at byte {place:,} of {size:,}; copy it again")
            require_memory(path, length * LARGEST, "its packets")
            place += 8 + length


def _table_position(header: bytes) -> int:
    """Where the table of packets begins, or -1: the second field of the FlatBuffer that the header is.

    The third is XML. ValueError if one is outside, or the XML is not ASCII: aedat would stumble over it.
    """
    try:
        root = struct.unpack_from("<I", header)[0]
        place = root - struct.unpack_from("<i", header, root)[0]
        length, _, _, table, text = struct.unpack_from("<HHHHH", header, place)
        if length < 10 or min(root, place) < 0:
            raise ValueError("its header has no description")
        text += root + struct.unpack_from("<I", header, root + text)[0]
        size = struct.unpack_from("<I", header, text)[0]
        if text + 4 + size > len(header) or not header[text + 4 : text + 4 + size].isascii():
            raise ValueError("its description is cut off, or is not ASCII")
        return int(struct.unpack_from("<q", header, root + table)[0]) if table else -1
    except struct.error as error:
        raise ValueError(f"its header is damaged: {error}") from error


def write_aedat4(path: Path, events: Events) -> None:
    """iniVation AEDAT4 with one stream of events."""
    dv = _library("dv_processing", path)
    rows, columns = events.sensor
    store = dv.EventStore()
    for t, x, y, p in events.data.tolist():
        store.push_back(t, x, y, bool(p))
    config = dv.io.MonoCameraWriter.EventOnlyConfig("nrf", (columns, rows))
    writer = dv.io.MonoCameraWriter(str(path), config)
    writer.writeEvents(store)
    del writer  # closes the file
