"""Datasets of the real Tonic, in files made on the spot: the same frames as Tonic itself makes of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nir
import numpy as np
import pytest

import nrf
from nrf.events import Samples, from_tonic
from nrf.export import Contract, canonical

tonic: Any = pytest.importorskip("tonic", reason="the extra tonic is not installed")
SHAPE, STEP, STEPS = (2, 34, 34), 10_000, 12  # N-MNIST's sensor; us
Dataset = Callable[..., Any]


@pytest.fixture
def nmnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Six clips as N-MNIST stores them: 5 bytes per event, 1 bit of polarity and 23 of time."""
    rng = np.random.default_rng(0)
    for n in range(6):
        t = np.sort(rng.integers(0, STEPS * STEP, 300))
        t[0], t[-1] = 0, STEPS * STEP - 1
        x, y, p = rng.integers(0, 34, 300), rng.integers(0, 34, 300), rng.integers(0, 2, 300)
        data = np.stack([x, y, p << 7 | t >> 16, t >> 8 & 255, t & 255], 1).astype(np.uint8)
        folder = tmp_path / "NMNIST" / "Train" / str(n % 3)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{n:05}.bin").write_bytes(data.tobytes())
    monkeypatch.setattr(tonic.datasets.NMNIST, "_check_exists", lambda self: True)  # nothing to download
    return lambda **options: tonic.datasets.NMNIST(str(tmp_path), **options)


def test_a_dataset_gives_the_frames_that_tonic_makes(nmnist: Dataset, tmp_path: Path) -> None:
    to_frame = tonic.transforms.ToFrame(SHAPE[::-1], time_window=STEP, include_incomplete=True)
    wanted = [(frames[:STEPS], label) for frames, label in nmnist(transform=to_frame)]
    cached = tonic.DiskCachedDataset(nmnist(), cache_path=str(tmp_path / "cache"))
    ways = {
        "events": from_tonic(nmnist()),
        "cached": from_tonic(cached, sensor=SHAPE[1:]),
        "cached before": from_tonic(cached, sensor=SHAPE[1:]),
        "frames": from_tonic(nmnist(transform=to_frame)),
    }
    assert [label for _, label in wanted] == [0, 0, 1, 1, 2, 2]
    for name, way in ways.items():
        clips = Samples(way, STEP * 1e-6, SHAPE)
        assert clips.count == 6, name
        for clip, (frames, label) in zip(clips, wanted, strict=True):
            assert clip.label == label
            assert np.array_equal(clip.frames[:STEPS], frames), name


def test_a_dataset_through_run_and_conform(nmnist: Dataset) -> None:
    weight = np.random.default_rng(1).integers(-2, 6, (3, 2, 7, 7)) / 8
    nodes = {
        "input": nir.Input(np.array(SHAPE)),
        "conv": nir.Conv2d((34, 34), weight, 8, 0, 1, 1, np.zeros(3)),
        "if": nir.IF(np.ones((3, 4, 4)), np.ones((3, 4, 4)), np.zeros((3, 4, 4))),
        "flat": nir.Flatten({"input": np.array([3, 4, 4])}, 0, -1),
        "output": nir.Output(None),
    }
    edges = [("input", "conv"), ("conv", "if"), ("if", "flat"), ("flat", "output")]
    contract = Contract(dt=STEP * 1e-6, reset="subtract", fire="ge", membrane="unit", max_spikes=0, classes=0)
    graph = canonical(nir.NIRGraph(nodes, edges, type_check=False), contract, "stranger")
    ran = list(nrf.run_many(graph, from_tonic(nmnist())))
    assert [clip.label for clip in ran] == [0, 0, 1, 1, 2, 2] and all(clip.spikes for clip in ran)
    report = nrf.conform(graph, "speck2f", from_tonic(nmnist()), runtimes=["builtin"])
    assert report.verdict == "pass", report.failures
    assert [clip["label"] for clip in report.clips] == [0, 0, 1, 1, 2, 2]
