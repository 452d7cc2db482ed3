"""Files as event cameras write them, through the libraries of their makers and users.

    .raw     Prophesee EVT2 (expelliarmus) and EVT3 (below); written as EVT2
    .dat     Prophesee DAT (expelliarmus)
    .aedat4  iniVation (dv-processing)

EVT3 is decoded here because expelliarmus 1.1.12 adds 4096 us whenever the low half of the time is
smaller than before, also when the high half has moved on: it stretches the 8.8 ms of its own sample
recording to 53.9 ms. Columns, rows and polarities of all its 219,596 events agree with ours.
"""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError
from nrf.events.types import COLUMNS, Content, Events

LAST_TIME = 2**32  # microseconds that EVT2 and DAT hold in expelliarmus


def _library(name: str, path: Path) -> ModuleType:
    try:
        return __import__(name)
    except ImportError as error:
        raise InputError(
            f"{path}: this format needs {name.replace('_', '-')}; install it with pip install 'nrf[formats]'"
        ) from error


def _header(path: Path) -> tuple[str, bytes]:
    """The lines that start with %, up to "% end" if that is there, and what follows them."""
    content = path.read_bytes()
    lines = re.match(rb"(%(?! end).*\n?)*(% end.*\n?)?", content)
    end = lines.end() if lines else 0
    return content[:end].decode("ascii", "replace"), content[end:]


def _content(events: NDArray[Any], header: str = "", sensor: tuple[int, int] | None = None) -> Content:
    """The columns of events, and the sensor as given or in one of the three ways that headers have.

    A camera's clock does not start with the recording: time counts from the first event.
    """
    about: dict[str, Any] = {"start": events["t"][0] if len(events) else 0}
    rows = re.search(r"height[ =](\d+)", header, re.IGNORECASE)
    columns = re.search(r"width[ =](\d+)", header, re.IGNORECASE)
    if geometry := re.search(r"geometry (\d+)x(\d+)", header):
        sensor = int(geometry[2]), int(geometry[1])
    elif rows and columns:
        sensor = int(rows[1]), int(columns[1])
    return {name: events[name] for name in COLUMNS}, about | ({"sensor": sensor} if sensor else {})


def read_raw(path: Path) -> Content:
    """Prophesee RAW: the header says which encoding."""
    header, body = _header(path)
    match = re.search(r"evt ?(\d)", header, re.IGNORECASE)
    if match is None:
        raise InputError(f"{path}: not a Prophesee RAW file, the header does not name EVT2 or EVT3")
    if match[1] == "2":
        return read_prophesee(path, "evt2")
    if match[1] != "3":
        raise InputError(f"{path}: encoding EVT{match[1]} is not known; convert it to EVT2 or EVT3")
    return _content(decode_evt3(np.frombuffer(body, "<u2", count=len(body) // 2)), header)


def read_prophesee(path: Path, encoding: str) -> Content:
    """Prophesee RAW (encoding "evt2") or DAT ("dat")."""
    wizard = _library("expelliarmus", path).Wizard(encoding)
    try:
        events = wizard.read(path)
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        raise InputError(f"{path}: not a readable {encoding.upper()} file ({error})") from error
    if events is None:
        raise InputError(f"{path}: holds no events, or is not a {encoding.upper()} file")
    return _content(events, _header(path)[0])


def decode_evt3(words: NDArray[np.uint16]) -> NDArray[Any]:
    """Events from EVT3 words: 4 bits of type, 12 of content, and every word changes one part of the state.

    0 row; 2 one event (polarity, column); 3 polarity and base column of a vector; 4, 5 which of the
    next 12 or 8 columns fired; 6 low and 8 high 12 bits of the time in microseconds.
    """
    kind, content = words >> 12, (words & 0xFFF).astype(np.int64)
    index = np.arange(len(words))

    def latest(of: NDArray[np.bool_], value: NDArray[np.int64]) -> NDArray[np.int64]:
        """At every word, the value of the last word of that type so far (0 before the first)."""
        last = np.maximum.accumulate(np.where(of, index, -1))
        return np.where(last >= 0, value[last], 0)

    high = content[kind == 8]
    turns = np.concatenate([[0], np.cumsum(np.diff(high) < -2048)])[: len(high)]  # 24 bits wrap in 16.8 s
    unwrapped = np.zeros(len(words), np.int64)
    unwrapped[kind == 8] = (turns << 12) + high
    time = (latest(kind == 8, unwrapped) << 12) + latest(kind == 6, content)
    row = latest(kind == 0, content & 0x7FF)

    width = np.select([kind == 4, kind == 5], [12, 8], 0)
    travelled = np.cumsum(width) - width
    base = kind == 3
    vector_column = latest(base, content & 0x7FF) + travelled - latest(base, travelled)
    vector_polarity = latest(base, content >> 11)

    at, bit = np.nonzero((content[:, None] >> np.arange(12) & 1) * (np.arange(12) < width[:, None]))
    single = index[kind == 2]
    source = np.concatenate([single, at])
    column = np.concatenate([content[single] & 0x7FF, vector_column[at] + bit])
    polarity = np.concatenate([content[single] >> 11, vector_polarity[at]])
    order = np.argsort(source, kind="stable")
    source = source[order]
    columns = [time[source], column[order], row[source], polarity[order]]
    return np.rec.fromarrays(columns, dtype=[(name, "<i8") for name in COLUMNS])


def write_prophesee(path: Path, events: Events, encoding: str) -> None:
    """Prophesee RAW (encoding "evt2") or DAT ("dat")."""
    wizard = _library("expelliarmus", path).Wizard(encoding)
    if len(events) == 0:
        raise InputError(f"{path}: a {encoding.upper()} file cannot be without events")
    if events.data["t"][-1] >= LAST_TIME or max(events.sensor) > 2048:
        raise InputError(f"{path}: {encoding.upper()} holds times below 2^32 us and sensors up to 2048x2048")
    layout = np.dtype([("t", "<i8"), ("x", "<i2"), ("y", "<i2"), ("p", "u1")], align=True)
    rows, width = events.sensor
    size = f"% Height {rows}\n% Width {width}\n" if encoding == "dat" else f"% geometry {width}x{rows}\n"
    wizard.save(path, events.data.astype(layout))
    path.write_bytes(size.encode() + path.read_bytes())


def read_aedat4(path: Path) -> Content:
    """iniVation AEDAT4: the first stream of events."""
    dv = _library("dv_processing", path)
    try:
        recording = dv.io.MonoCameraRecording(str(path))
        if not recording.isEventStreamAvailable():
            raise InputError(f"{path}: holds no stream of events")
        width, rows = recording.getEventResolution()
        batches = []
        while (batch := recording.getNextEventBatch()) is not None:
            batches.append(batch.numpy())
    except RuntimeError as error:
        raise InputError(f"{path}: not a readable AEDAT4 file ({str(error).splitlines()[0]})") from error
    if not batches:
        raise InputError(f"{path}: holds no events")
    data = np.concatenate(batches)
    data.dtype.names = COLUMNS
    return _content(data, sensor=(rows, width))


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
