"""Write the seeds: one or two small good files of every format.  python -m tests.fuzz.write_seeds"""

import shutil
import tempfile
from pathlib import Path

import nir
import numpy as np
from msgspec.structs import replace

import nrf
from nrf.backends.conformance.cases import write_cases
from nrf.events import write
from nrf.events.dataset import make_dataset, paper_config
from nrf.export.graph import Graph
from nrf.export.nir_files import write_graph
from nrf.export.trained import from_checkpoint
from nrf.model.network import build
from nrf.training import checkpoint
from nrf.training.config import Config
from nrf.training.presets import load_preset
from tests.backends.loihi.graphs import DT, chain, joined, lif
from tests.backends.speck.graphs import one_layer, pool
from tests.nrf.events.recordings import random_events
from tests.nrf.events.test_files import evt3

SEEDS = Path(__file__).parent / "seeds"
SUMMARY = {
    "preset": "tiny",
    "step": 1,
    "error": 1.0,
    "centre_error": 2.0,
    "held_out_clips": 1,
    "firing": {},
    "seed": 0,
}


def write_seeds(folder: Path = SEEDS) -> None:
    """All of them, anew."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    conv = nir.Conv2d(
        None, rng.normal(0.3, 1, (3, 2, 3, 3)).astype(np.float32), 1, 1, 1, 1, np.zeros(3, np.float32)
    )
    two = np.array([2, 2])
    maps = chain(
        conv, lif((3, 1, 1)), nir.SumPool2d(two, two, 0 * two), nir.Flatten({"input": None}, 0, -1),
        nir.Affine(rng.normal(0, 0.5, (4, 48)).astype(np.float32), np.full(4, 0.1, np.float32)), lif(4),
        shape=(2, 8, 8),
    )  # fmt: skip
    nodes = {
        "in": nir.Affine(rng.normal(0.5, 1, (5, 4)), np.zeros(5)),
        "cuba": nir.CubaLIF(
            **{
                "tau_syn": np.full(5, 4e-3),
                "tau_mem": np.full(5, 8e-3),
                "r": np.ones(5),
                "v_leak": np.zeros(5),
            },
            **{"v_threshold": np.ones(5), "w_in": np.ones(5)},
        ),
        "back": nir.Linear(rng.normal(0, 0.3, (5, 5))),
        "wait": nir.Delay(np.full(5, 2 * DT)),
        "scale": nir.Scale(np.full(5, 1.5)),
        "lif": lif(5),
    }
    edges = [("input", "in"), ("in", "cuba"), ("cuba", "back"), ("back", "cuba"), ("cuba", "wait"),
             ("wait", "scale"), ("scale", "lif"), ("lif", "output")]  # fmt: skip
    loop = joined(nodes, edges, (4,))
    speck = one_layer(before=pool(2), pooled=4, padding=1)
    for name, graph in (("maps", maps), ("loop", loop), ("speck", speck)):
        write_graph(folder / f"{name}.nir", graph)
    ends = {"input": nir.Input(np.array([4])), "output": nir.Output(np.array([4]))}
    inner = nir.NIRGraph(ends | {"a": nir.Linear(np.eye(4))}, [("input", "a"), ("a", "output")])
    outer = {
        "input": nir.Input(np.array([4])),
        "sub": inner,
        "lif": lif(4),
        "output": nir.Output(np.array([4])),
    }
    nir.write(
        folder / "nested.nir", nir.NIRGraph(outer, [("input", "sub"), ("sub", "lif"), ("lif", "output")])
    )
    for name, graph, chip in (
        ("maps", maps, "loihi2"),
        ("loop", loop, "loihi2"),
        ("speck", speck, "speck2f"),
    ):
        nrf.lower(graph, chip, out=folder / f"{name}.{chip}")
    frames = (rng.random((5, 2, 8, 8)) < 0.2).astype(np.uint8)
    recording = nrf.run(folder / "maps.loihi2", frames)
    recording.save(folder / "recording.npz")
    spikes = {name: recording.dense(name).astype(np.uint8) for name in recording.spikes}
    np.savez_compressed(folder / "golden.npz", input=frames, **spikes)
    data = {
        name: nir.NIRNodeData(
            {"spikes": nir.TimeGriddedData(values.reshape(1, len(values), -1).astype(float), DT)}
        )
        for name, values in spikes.items()
    }
    data["input"] = nir.NIRNodeData(
        {"spikes": nir.TimeGriddedData(frames.reshape(1, 5, -1).astype(float), DT)}
    )
    nir.write_data(folder / "golden.nir", nir.NIRGraphData(data))
    events = random_events(1, count=60, sensor=(8, 8), last=5000)
    for ending in ("npz", "csv", "h5", "raw", "dat", "aedat4"):
        write(folder / f"events.{ending}", events)
    dv = __import__("dv_processing")
    store = dv.EventStore()
    for t, x, y, p in events.data.tolist():
        store.push_back(t, x, y, bool(p))
    plain = dv.io.MonoCameraWriter.EventOnlyConfig("nrf", (8, 8), dv.CompressionType.NONE)
    writer = dv.io.MonoCameraWriter(str(folder / "plain.aedat4"), plain)
    writer.writeEvents(store)
    del writer
    import h5py

    with h5py.File(folder / "compound.h5", "w") as file:
        file.create_dataset("CD/events", data=events.data, chunks=(16,))
    words = evt3([tuple(int(v) for v in row) for row in events.data.tolist()])
    (folder / "evt3.raw").write_bytes(b"% evt 3.0\n% geometry 8x8\n% end\n" + words)
    config = paper_config("spatial", 1, 32)
    config = replace(config, shapes=replace(config.shapes, steps=8))
    with tempfile.TemporaryDirectory() as place:
        list(make_dataset(Path(place) / "d", config))
        (folder / "dataset.json").write_bytes((Path(place) / "d" / "dataset.json").read_bytes())
        (folder / "clip.npz").write_bytes((Path(place) / "d" / "clips" / "000000.npz").read_bytes())
    tiny = load_preset("tiny")
    checkpoint.write(folder / "tiny.safetensors", build(tiny.network, 0), tiny, SUMMARY)
    write_graph(folder / "trained.nir", _trained(tiny))
    labels = np.array([3, 0, 7, 1])
    np.savez(folder / "labels.npz", labels=labels)
    np.save(folder / "labels.npy", labels)
    np.savetxt(folder / "labels.csv", labels, "%d")
    with tempfile.TemporaryDirectory() as place:
        write_cases(place, ["conv2d"])
        shutil.copy(Path(place) / "conv2d" / "case.json", folder / "case.json")


def _trained(config: Config) -> Graph:
    """The network of a preset with all of its nodes but small maps, so that lowering takes little time."""
    blocks = tuple(replace(block, features=2, kernel=3) for block in config.network.blocks)
    network = replace(config.network, input=(2, 8, 8), blocks=blocks)
    data = replace(config.data, shapes=replace(config.data.shapes, resolution=8, scales=(2.0,)))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "small.safetensors"
        checkpoint.write(path, build(network, 0), replace(config, network=network, data=data), SUMMARY)
        return from_checkpoint(path)


if __name__ == "__main__":
    write_seeds()
