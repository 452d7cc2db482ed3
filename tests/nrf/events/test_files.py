"""Every format: real files, written by us or by the format's own library, read back."""

import struct

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.errors import InputError
from nrf.events import load_frames, make, read, write
from nrf.events.cameras import decode_evt2, decode_evt3
from tests.nrf.events.recordings import random_events

EVENT = st.tuples(st.integers(0, 40_000), st.integers(0, 1279), st.integers(0, 719), st.integers(0, 1))
FORMATS = ["npz", "csv", "h5", "hdf5", "raw", "dat", "aedat4"]


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


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "LZ4_HIGH", "ZSTD", "ZSTD_HIGH"])
def test_aedat4_of_its_maker_is_read(tmp_path, compression):
    dv = pytest.importorskip("dv_processing")
    events = random_events(6, count=2000, sensor=(48, 64))
    store = dv.EventStore()
    for t, x, y, p in events.data.tolist():
        store.push_back(t, x, y, bool(p))
    kind = getattr(dv.CompressionType, compression)
    config = dv.io.MonoCameraWriter.EventOnlyConfig("nrf", (64, 48), kind)
    writer = dv.io.MonoCameraWriter(str(tmp_path / "a.aedat4"), config)
    writer.writeEvents(store)
    del writer
    ours = read(tmp_path / "a.aedat4")
    assert np.array_equal(ours.data, events.data) and ours.sensor == (48, 64)


@pytest.mark.parametrize(("ending", "encoding"), [("raw", "evt2"), ("dat", "dat")])
def test_prophesee_agrees_with_expelliarmus(tmp_path, ending, encoding):
    """Our files in their reader, and theirs in ours, over half a turn of the 32-bit clock."""
    expelliarmus = pytest.importorskip("expelliarmus")
    events = random_events(9, count=5000, sensor=(720, 1280), last=2**31)
    write(tmp_path / f"ours.{ending}", events)
    theirs = expelliarmus.Wizard(encoding).read(tmp_path / f"ours.{ending}")
    assert all(np.array_equal(theirs[name], events.data[name]) for name in "txyp")
    expelliarmus.Wizard(encoding).save(tmp_path / f"theirs.{ending}", theirs)
    assert np.array_equal(read(tmp_path / f"theirs.{ending}").data, events.data)


@pytest.mark.parametrize("ending", ["raw", "dat", "aedat4"])
def test_every_cut_of_a_recording_is_events_or_one_line(tmp_path, ending):
    events = random_events(10, count=40, sensor=(8, 8))
    path = tmp_path / f"a.{ending}"
    write(path, events)
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        try:
            assert len(read(path)) < 40 or ending == "aedat4"
        except InputError as error:
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)


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
    gaps = [gap for gap, *_ in steps]
    times = first + np.cumsum([0, *gaps[1:]])  # the first time is what 24 bits hold; wraps come after it
    events = [(int(t), x, y, p) for t, (_, x, y, p) in zip(times, steps, strict=True)]
    assert decoded(np.frombuffer(evt3(events), "<u2")).tolist() == events


def decoded(*pieces: np.ndarray, decode=decode_evt3) -> np.ndarray:
    """Events of words that come in pieces."""
    return np.concatenate(list(decode(iter(pieces))))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 199), min_size=1, max_size=4), st.booleans())
def test_words_in_pieces_give_the_same_events(seed, cuts, vectors):
    rng = np.random.default_rng(seed)
    for decode, bits in ((decode_evt3, 16), (decode_evt2, 32)):
        words = rng.integers(0, 2**bits, 200).astype(f"<u{bits // 8}")
        if vectors and bits == 16:
            words = words & 0xFFF | rng.choice([0x3000, 0x4000, 0x5000, 0x4000], 200).astype("<u2")
        pieces = [piece for piece in np.split(words, sorted(cuts)) if len(piece)]
        assert np.array_equal(decoded(words, decode=decode), decoded(*pieces, decode=decode))


def test_evt3_vectors_spread_from_their_base():
    words = [0x8000, 0x6005, 0x0007, 0x3800 | 100, 0x4000 | 0b100000000001, 0x5000 | 0b10000001, 0x2000 | 3]
    events = decoded(np.array(words, np.uint16)).tolist()
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
        ("a.csv", b"t,x,y,p\n\n \n", "holds no events"),
        ("a.csv", b"t,x,y,p\ninf,0,0,1\n", "column t reaches inf to inf, beyond 2^62"),
        ("a.csv", b"# sensor 32\nt,x,y,p\n1,2,3,1\n", "sensor is [32], expected two whole numbers"),
        ("a.csv", b"# sensor 32x32\nt,x,y,p\n1,2,3,1\n", "sensor is ['32x32'], expected two whole numbers"),
        ("a.csv", b"# sensor -1 4\nt,x,y,p\n1,2,3,1\n", "sensor is -1 rows x 4 columns, expected at least 1"),
        ("a.csv", b"# stop\nt,x,y,p\n1,2,3,1\n", "stop is [], expected a whole number of microseconds"),
        ("a.csv", b"\xff\xfet\x00,\x00", "not a readable .csv file"),
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


COLUMNS = {"t": [0, 1], "x": [2, 3], "y": [0, 1], "p": [1, 0]}
DATES = np.array(["2024-01-01", "2024-01-02"], "datetime64[s]")
BAD_ARRAYS = [
    ({"t": np.array([b"a", b"b"])}, "column t holds |S1, expected whole numbers"),
    ({"t": DATES}, "column t holds datetime64[s], expected whole numbers"),
    ({"x": 3}, "column x has shape (), expected one dimension"),
    ({"y": [[0], [1]]}, "column y has shape (2, 1), expected one dimension"),
    ({"t": [0, 1j]}, "column t holds complex128, expected whole numbers"),
    ({"t": [0, np.inf]}, "column t reaches 0.0 to inf, beyond 2^62"),
    ({"t": np.array([0, 2**64 - 1], np.uint64)}, "column t reaches 0 to 18446744073709551615, beyond 2^62"),
    ({"x": [2, 70000]}, "a sensor of 70001 columns x 2 rows; at most 65536 of each fit"),
    ({"sensor": [32]}, "sensor is [32], expected two whole numbers, rows and columns"),
    ({"sensor": [2, 32, 32]}, "sensor is [2, 32, 32], expected two"),
    ({"sensor": ["a", "b"]}, "sensor is ['a', 'b'], expected two"),
    ({"sensor": "32x32"}, "sensor is ['32x32'], expected two"),
    ({"sensor": [np.nan, 32]}, "sensor is [nan, 32.0], expected two"),
    ({"sensor": [0, 32]}, "sensor is 0 rows x 32 columns, expected at least 1 x 1"),
    ({"start": [0, 1]}, "start is [0, 1], expected a whole number of microseconds"),
    ({"start": "now"}, "start is ['now'], expected a whole number"),
    ({"start": np.nan}, "start is [nan], expected a whole number"),
    ({"stop": np.uint64(2**64 - 1)}, "stop is 18446744073709551615 us, expected at most 2^62"),
]


@pytest.mark.parametrize("ending", ["npz", "h5"])
@pytest.mark.parametrize(("change", "words"), BAD_ARRAYS)
def test_arrays_that_are_not_events_are_refused_with_one_clear_line(tmp_path, ending, change, words):
    path, content = tmp_path / f"a.{ending}", COLUMNS | change
    if ending == "npz":
        np.savez(path, **content)
    elif isinstance(np.ravel(next(iter(change.values())))[0], str):
        pytest.skip("texts among the attributes are named by their type")
    elif change.get("t") is DATES:
        pytest.skip("HDF5 has no dates")
    else:
        with h5py.File(path, "w") as file:
            for name, value in content.items():
                (file if name in COLUMNS else file.attrs)[name] = value
    with pytest.raises(InputError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: {words}") and "\n" not in str(error.value)


ODD = st.sampled_from([0, 1, -1, 2, 7.0, 0.5, np.nan, np.inf, 1j, 2**62, 2**64 - 1, 1e300, "a", b"a", True])
ANY_ARRAY = st.one_of(ODD, st.lists(ODD, max_size=3), st.lists(st.lists(ODD, min_size=2, max_size=2)))


@given(st.dictionaries(st.sampled_from(["t", "x", "y", "p", "sensor", "start", "stop", "frames"]), ANY_ARRAY))
def test_whatever_a_file_holds_is_events_or_one_line_about_it(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "odd.npz"
    np.savez(path, **{name: np.asarray(value) for name, value in (COLUMNS | content).items()})
    for call in (read, lambda path: load_frames(path, 1e-3, (2, 8, 8))):
        try:
            call(path)
        except InputError as error:
            assert str(error).startswith(f"{path}: ") and "\n" not in str(error)


def test_hdf5_groups_in_the_place_of_columns_are_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in COLUMNS:
            file.create_group(f"events/{name}")
    with pytest.raises(InputError, match=r"a\.h5: /events/t is a group, expected a dataset"):
        read(tmp_path / "a.h5")


def test_csv_of_a_spreadsheet_with_remarks_is_read(tmp_path):
    lines = "# recorded with DVS\n#\n# sensor 8 9\n# stop 500\nt,x,y,p\n1,2,3,1\n"
    (tmp_path / "a.csv").write_text(lines, encoding="utf-8-sig")
    events = read(tmp_path / "a.csv")
    assert events.data.tolist() == [(1, 2, 3, 1)] and events.sensor == (8, 9) and events.stop == 500


@pytest.mark.parametrize("ending", FORMATS)
def test_folders_are_called_folders(tmp_path, ending):
    (tmp_path / f"a.{ending}").mkdir()
    for call in (read, lambda path: load_frames(path, 1e-3, (2, 8, 8))):
        with pytest.raises(InputError, match=rf"a\.{ending}: is a folder, expected a file"):
            call(tmp_path / f"a.{ending}")


def test_missing_files_and_columns(tmp_path):
    with pytest.raises(InputError, match=r"none\.npz: no such file"):
        read(tmp_path / "none.npz")
    np.savez(tmp_path / "a.npz", t=[1], x=[1])
    with pytest.raises(InputError, match="no y, p; expected t, x, y, p"):
        read(tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"a\.txt: unknown ending '\.txt'; known are \.npz \.csv"):
        write(tmp_path / "a.txt", random_events(0))


def test_times_that_a_format_cannot_hold_are_refused(tmp_path):
    late = make([2**34], [0], [0], [1], sensor=(4, 4))
    with pytest.raises(InputError, match=r"/late\.raw: EVT2 holds times below 2\^34 us"):
        write(tmp_path / "late.raw", late)
    assert not list(tmp_path.iterdir())
