"""Clips of all kinds: the same frames and labels whichever way they come, read one at a time."""

import numpy as np
import pytest

from nrf.errors import InputError
from nrf.events import Samples, from_tonic, make, write
from nrf.events.clips import read_labels

SHAPE = (2, 5, 6)


def all_of(*sources, labels=None, width=None):
    return list(Samples(sources, width, SHAPE, labels))


@pytest.fixture
def frames():
    return (np.random.default_rng(0).random((3, 4, *SHAPE)) < 0.2).astype(np.float32)


def test_arrays_files_a_folder_and_one_file_of_many_are_the_same_clips(tmp_path, frames):
    labels = [1, 0, 2]
    (tmp_path / "each").mkdir()
    for n, clip in enumerate(frames):
        np.savez(tmp_path / "each" / f"{n}.npz", frames=clip, label=labels[n])
    np.savez(tmp_path / "many.npz", frames=frames, labels=labels)
    ways = (
        all_of(*frames, labels=labels),
        all_of(*sorted((tmp_path / "each").iterdir())),
        all_of(tmp_path / "each"),
        all_of(tmp_path / "many.npz"),
    )
    for way in ways:
        assert [clip.label for clip in way] == labels
        assert np.array_equal([clip.frames for clip in way], frames)
    assert [clip.name for clip in ways[3]] == ["many.npz 0", "many.npz 1", "many.npz 2"]


def test_they_are_counted_without_being_read(tmp_path, frames):
    np.savez_compressed(tmp_path / "many.npz", frames=frames)
    np.savez(tmp_path / "one.npz", frames=frames[0])
    assert Samples([tmp_path, frames[1]], None, SHAPE).count == 5
    assert Samples(iter(frames), None, SHAPE).count is None


def test_a_shape_with_axes_of_one_is_still_told_from_many_clips():
    assert len(list(Samples([np.zeros((7, 4, 1, 1))], None, (4,)))) == 1
    with pytest.raises(InputError, match=r"\(7, 4, 3\)"):
        list(Samples([np.zeros((7, 4, 3))], None, (4,)))


def test_clips_are_read_as_their_turn_comes(frames):
    taken = []

    def dataset():
        for n, clip in enumerate(frames):
            taken.append(n)
            yield clip, n

    clips = iter(Samples(dataset(), None, SHAPE))
    assert next(clips).label == 0 and taken == [0]


def test_events_of_a_dataset_in_the_form_of_tonic(tmp_path):
    kind = np.dtype([("x", int), ("y", int), ("t", int), ("p", bool)])  # as tonic.io.make_structured_array
    rng = np.random.default_rng(3)

    class Dataset:
        sensor_size = (6, 5, 2)  # columns, rows, polarities

        def __len__(self):
            return 2

        def __getitem__(self, n):
            if n >= 2:
                raise IndexError
            rows = zip(*(rng.integers(0, high, 20) for high in (6, 5, 9000, 2)), strict=True)
            return np.sort(np.array(list(rows), kind), order="t"), n + 3

    clips = Samples(from_tonic(Dataset()), 1e-3, SHAPE)
    assert clips.count == 2
    first, second = clips
    assert (first.label, second.label) == (3, 4)
    assert first.frames.shape[1:] == SHAPE and first.frames.sum() == 20


def test_events_in_a_folder_are_binned(tmp_path):
    write(tmp_path / "a.csv", make([0, 2500], [1, 2], [0, 4], [0, 1], (5, 6)))
    (clip,) = all_of(tmp_path, width=1e-3)
    assert clip.frames.shape == (3, *SHAPE) and clip.frames[2, 1, 4, 2] == 1


@pytest.mark.parametrize("name", ["l.txt", "l.npy", "l.npz"])
def test_labels_of_a_file(tmp_path, name):
    path = tmp_path / name
    {".txt": np.savetxt, ".npy": np.save, ".npz": lambda file, x: np.savez(file, labels=x)}[path.suffix](
        path, np.array([3, 1, 4])
    )
    assert read_labels(path) == [3, 1, 4]


def test_what_is_wrong_is_named(tmp_path, frames):
    np.savez(tmp_path / "bad.npz", frames=frames, labels=[0, 1])
    np.savez(tmp_path / "one.npz", frames=frames[0], labels=[0, 1])
    np.savez(tmp_path / "few.npz", frames=frames, coordinates=np.zeros((2, 20, 3, 2)))
    np.savez(tmp_path / "text.npz", frames=frames[0], coordinates="here")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "wrong.npz", frames=np.zeros((4, 2, 5, 5)))
    (tmp_path / "labels.txt").write_text("1.5\n")
    np.savez_compressed(tmp_path / "bomb.npz", labels=np.zeros(10**7, np.uint8))
    for words, call in {
        "bad.npz: 2 labels for 3 clips": lambda: all_of(tmp_path / "bad.npz"),
        "one.npz: 2 labels for 1 clips": lambda: all_of(tmp_path / "one.npz"),
        "few.npz: 2 coordinates for 3 clips": lambda: all_of(tmp_path / "few.npz"),
        "text.npz: coordinates are <U4": lambda: all_of(tmp_path / "text.npz"),
        "empty: no clip inside": lambda: all_of(tmp_path / "empty"),
        "gone.npz: no such file or folder": lambda: all_of(tmp_path / "gone.npz"),
        "2 labels for 3 clips": lambda: all_of(*frames, labels=[1, 2]),
        "more clips than the 1 labels": lambda: list(Samples(iter(frames), None, SHAPE, [1])),
        "wrong.npz: frames have shape": lambda: all_of(tmp_path / "wrong.npz"),
        "holds 1.5, expected whole": lambda: read_labels(tmp_path / "labels.txt"),
        "bomb.npz: 10,000,000 labels, expected at most 1,000,000": lambda: read_labels(tmp_path / "bomb.npz"),
        "no sensor_size": lambda: from_tonic([]),
    }.items():
        with pytest.raises(InputError, match=words):
            call()
