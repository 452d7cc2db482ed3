"""Every format: real files, written by us or by the format's own library, read back."""

import struct

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.camera_files import decode_evt3
from nrf.errors import InputError
from nrf.events import Events, make, read, write

EVENT = st.tuples(st.integers(0, 40_000), st.integers(0, 1279), st.integers(0, 719), st.integers(0, 1))
FORMATS = ["npz", "csv", "h5", "hdf5", "raw", "dat", "aedat4"]


def random_events(seed: int, count: int = 500, sensor=(12, 20), last: int = 50_000) -> Events:
    rng = np.random.default_rng(seed)
    t = np.sort(rng.integers(0, last, count))
    x, y = rng.integers(0, sensor[1], count), rng.integers(0, sensor[0], count)
    return make(t, x, y, rng.integers(0, 2, count), sensor, stop=last)


@pytest.mark.parametrize("ending", FORMATS)
def test_what_is_written_is_read_back(tmp_path, ending):
    events = random_events(5, count=3000, sensor=(240, 304), last=2_000_000)
    path = tmp_path / f"recording.{ending}"
    write(path, events)
    back = read(path)
    assert np.array_equal(back.data, events.data)
    assert back.sensor == events.sensor
    if ending in ("npz", "csv", "h5", "hdf5"):
        assert (back.start, back.stop) == (events.start, events.stop)
    else:
        assert back.start == events.data["t"][0]
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "nothing else is left behind"


def test_aedat4_agrees_with_an_independent_reader(tmp_path):
    aedat = pytest.importorskip("aedat")
    events = random_events(6, count=2000, sensor=(48, 64))
    write(tmp_path / "a.aedat4", events)
    packets = [packet["events"] for packet in aedat.Decoder(tmp_path / "a.aedat4")]
    theirs = np.concatenate(packets)
    for ours, name in (("t", "t"), ("x", "x"), ("y", "y"), ("p", "on")):
        assert np.array_equal(events.data[ours], theirs[name])


def evt3(events: list[tuple[int, int, int, int]]) -> bytes:
    """EVT3 as the format describes it, the plain way: time high, time low, row, then one word per event."""
    words, high = [], None
    for t, x, y, p in events:
        if t >> 12 != high:  # cameras repeat the high half often, so that its wrap can be seen
            first = t >> 12 if high is None else high + 1
            words += [0x8000 | (k & 0xFFF) for k in range(first, (t >> 12) + 1)]
            high = t >> 12
        words += [0x6000 | t & 0xFFF, y, 0x2000 | p << 11 | x]
    return struct.pack(f"<{len(words)}H", *words)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 40_000), st.integers(0, 1279), st.integers(0, 719), st.integers(0, 1)),
        min_size=1,
    ),
    st.integers(0, 2**24 - 1),
)
def test_evt3_gives_back_any_events_over_gaps_and_wraps(steps, first):
    times = first + np.cumsum([gap for gap, *_ in steps])
    events = [(int(t), x, y, p) for t, (_, x, y, p) in zip(times, steps, strict=True)]
    assert decode_evt3(np.frombuffer(evt3(events), "<u2")).tolist() == events


def test_evt3_vectors_spread_from_their_base():
    words = [0x8000, 0x6005, 0x0007, 0x3800 | 100, 0x4000 | 0b100000000001, 0x5000 | 0b10000001, 0x2000 | 3]
    events = decode_evt3(np.array(words, np.uint16)).tolist()
    assert events == [(5, 100, 7, 1), (5, 111, 7, 1), (5, 112, 7, 1), (5, 119, 7, 1), (5, 3, 7, 0)]


def test_evt3_agrees_with_expelliarmus_where_that_is_right(tmp_path):
    expelliarmus = pytest.importorskip("expelliarmus")
    events = random_events(7, count=2000, sensor=(720, 1280), last=4096)  # within one turn of the low half
    path = tmp_path / "short.raw"
    path.write_bytes(b"% evt 3.0\n" + evt3(events.data.tolist()))
    theirs = expelliarmus.Wizard("evt3").read(path)
    assert np.array_equal(read(path, sensor=(720, 1280)).data, theirs.astype(events.data.dtype))


@pytest.mark.parametrize("line", [b"% geometry 1280x720\n", b"% format EVT3;height=720;width=1280\n"])
def test_raw_header_gives_the_sensor(tmp_path, line):
    (tmp_path / "a.raw").write_bytes(b"% evt 3.0\n" + line + b"% end\n" + evt3([(9_000_000, 3, 4, 1)]))
    events = read(tmp_path / "a.raw")
    assert events.sensor == (720, 1280) and events.start == 9_000_000
    assert events.frames(1e-3).shape[0] == 1, "time counts from the first event of a camera"


def test_hdf5_of_other_makers(tmp_path):
    table = np.zeros(3, [("x", "<u2"), ("y", "<u2"), ("p", "<i2"), ("t", "<i8")])
    table["t"], table["x"], table["p"] = [1, 2, 3], [4, 5, 6], [1, 0, 1]
    with h5py.File(tmp_path / "compound.h5", "w") as file:
        file["CD/events"] = table
    with h5py.File(tmp_path / "root.h5", "w") as file:
        for name in "txyp":
            file[name] = table[name]
    for name in ("compound.h5", "root.h5"):
        assert read(tmp_path / name).data["x"].tolist() == [4, 5, 6]


def test_csv_columns_in_any_order_without_remarks(tmp_path):
    (tmp_path / "a.csv").write_text("x, y, p, t\n1,2,1,100\n3,4,0,200\n")
    events = read(tmp_path / "a.csv")
    assert events.data.tolist() == [(100, 1, 2, 1), (200, 3, 4, 0)] and events.sensor == (5, 4)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"t,x,y\n1,2,3\n", "no p; expected t, x, y, p"),
        ("a.csv", b"t,x,y,p\n", "holds no events"),
        ("a.csv", b"", "no t, x, y, p"),
        ("a.csv", b"t,x,y,p\n1,2,3\n", "the header names 4 columns, the lines have 3"),
        ("a.csv", b"t,x,y,p\n1,2,three,1\n", "not a readable .csv file"),
        ("a.csv", b"t,x,y,p\n5,0,0,1\n4,0,0,1\n", "time goes back at event 1"),
        ("a.npz", b"nonsense", "not a readable .npz file"),
        ("a.h5", b"nonsense", "not a readable HDF5 file"),
        ("a.raw", b"nonsense", "not a Prophesee RAW file"),
        ("a.raw", b"% evt 4.0\n", "encoding EVT4 is not known"),
        ("a.raw", b"% evt 3.0\n", "holds no events"),
        ("a.raw", b"% evt 2.0\n", "holds no events"),
        ("a.dat", b"% Version 2\n", "holds no events"),
        ("a.aedat4", b"nonsense", "not a readable AEDAT4 file"),
        ("a.aedat4", b"", "not a readable AEDAT4 file"),
        ("a.txt", b"", "unknown ending '.txt'"),
    ],
)
def test_bad_files_are_refused_with_one_clear_line(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        read(tmp_path / name)
    assert name in str(error.value) and words in str(error.value) and "\n" not in str(error.value)


def test_missing_files_and_columns(tmp_path):
    with pytest.raises(InputError, match=r"none\.npz: no such file"):
        read(tmp_path / "none.npz")
    np.savez(tmp_path / "a.npz", t=[1], x=[1])
    with pytest.raises(InputError, match="no y, p; expected t, x, y, p"):
        read(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"cannot write '\.txt'"):
        write(tmp_path / "a.txt", random_events(0))


def test_times_that_a_format_cannot_hold_are_refused(tmp_path):
    late = make([2**33], [0], [0], [1], sensor=(4, 4))
    with pytest.raises(InputError, match="EVT2 holds times below 2\\^32 us"):
        write(tmp_path / "late.raw", late)
