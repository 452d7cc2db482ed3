"""Training: reproducible, resumable after kill -9, the same on two processes, clear when it goes wrong."""

import csv
import dataclasses
import io
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from msgspec.structs import replace
from scipy.spatial.distance import jensenshannon

from nrf.config import to_toml
from nrf.errors import InputError
from nrf.events.dataset import DatasetConfig, make_dataset
from nrf.model.network import Network, build
from nrf.model.readout import Readout
from nrf.training import checkpoint
from nrf.training import loop as training
from nrf.training.batches import Batch, batch_numbers, flip_and_transpose, load_clips, split, stack
from nrf.training.config import Config
from nrf.training.evaluation import evaluate, run_windows
from nrf.training.log import Row, progress
from nrf.training.loop import learning_rate, train
from nrf.training.losses import firing_penalty, heat_map, jensen_shannon
from nrf.training.presets import load_preset
from nrf.training.pretraining import match_rates, run_frames, running_average, running_average_at, scale_ramps

TINY = load_preset("tiny")
SHORT = replace(
    TINY,
    data=replace(TINY.data, clips=12, shapes=replace(TINY.data.shapes, steps=15)),
    training=replace(
        TINY.training,
        steps=8,
        validate_every=2,
        pretrain=replace(TINY.training.pretrain, steps=4, batch=8, noise=0.0),
    ),
)


def nrf_train(config: Config, folder: Path, *options: str) -> subprocess.Popen[str]:
    path = folder.with_suffix(".toml")
    path.write_text(to_toml(config))
    program = str(Path(sys.executable).with_name("nrf"))
    command = [program, "train", "--config", str(path), "--out", str(folder), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    return out + err


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "log.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(path).tensors


def test_a_run_that_was_killed_and_resumed_equals_one_that_was_not(tmp_path):
    finish(nrf_train(SHORT, tmp_path / "whole"))
    process = nrf_train(SHORT, tmp_path / "killed")
    last = tmp_path / "killed" / checkpoint.LAST
    for _ in range(6000):  # until it is past a checkpoint in the second phase, but not done
        if last.exists() and checkpoint.read(last).summary["step"] >= 6:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert checkpoint.read(last).summary["step"] < 12, "it was too quick to be killed; make the run longer"
    finish(nrf_train(SHORT, tmp_path / "killed", "--resume"))
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    for name in (checkpoint.BEST, checkpoint.LAST):
        killed, whole = tensors(tmp_path / "killed" / name), tensors(tmp_path / "whole" / name)
        assert killed.keys() == whole.keys()
        assert all(torch.equal(killed[key], whole[key]) for key in whole), name


def test_two_processes_take_the_same_steps_as_one(tmp_path):
    one, two = nrf_train(SHORT, tmp_path / "one"), nrf_train(SHORT, tmp_path / "two", "--devices", "2")
    assert finish(one).count("held-out error") == finish(two).count("held-out error") == 1
    for a, b in zip(rows(tmp_path / "one"), rows(tmp_path / "two"), strict=True):
        if a["held_out"]:
            assert float(b["held_out"]) == pytest.approx(float(a["held_out"]), abs=0.02)
    first, second = tensors(tmp_path / "one" / checkpoint.LAST), tensors(tmp_path / "two" / checkpoint.LAST)
    for name in first:
        if "optimiser" not in name:
            torch.testing.assert_close(first[name], second[name], rtol=1e-2, atol=1e-4)


def test_training_beats_guessing_the_centre(tmp_path):
    config = replace(TINY.with_training(steps=30), data=replace(TINY.data, clips=60))
    summary = train(config, tmp_path / "run")
    assert summary["error"] < 0.9 * summary["centre_error"]
    saved = checkpoint.read(tmp_path / "run")
    assert saved.config == config and saved.summary == summary
    clips = load_clips(config)
    error, firing = evaluate(saved.network(), clips, split(len(clips), 0.2)[1], config.training)
    assert error == pytest.approx(summary["error"], abs=0.05)
    assert firing.keys() == summary["firing"].keys()


def test_a_process_without_a_clip_to_evaluate_adds_as_many_figures_as_the_others():
    class Process(Fabric):
        global_rank, world_size = 1, 2

        def all_reduce(self, data, *args, **kwargs):
            added.append(data)
            return data + torch.ones_like(data)  # of the other process

    added: list[torch.Tensor] = []
    network, clips = build(SHORT.network, SHORT.seed), load_clips(SHORT)
    for numbers in ([0], [0, 1]):  # this one has none, or clip 1
        evaluate(network, clips, numbers, SHORT.training, Process(accelerator="cpu", devices=1))
    assert added[0].shape == added[1].shape and not added[0].any() and added[1].any()


@pytest.mark.parametrize("pretraining", [0, 4])
@pytest.mark.parametrize(
    ("neuron", "history"), [("lif", 1), ("if", 1), ("li", 1), ("relu", 1), ("relu", 8), ("lif", 3)]
)
def test_every_activation_trains_with_and_without_pretraining(neuron, history, pretraining, tmp_path):
    network = replace(SHORT.network, neuron=neuron, history=history)
    config = replace(SHORT, network=network).with_training(
        pretrain=replace(SHORT.training.pretrain, steps=pretraining, noise=0.1), steps=2
    )
    before = build(config.network, config.seed).state_dict()
    train(config, tmp_path / "run")
    after = checkpoint.read(tmp_path / "run" / checkpoint.LAST).network().state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before if name.endswith("weight"))


@pytest.mark.parametrize("neuron", ["li", "relu"])
def test_on_still_frames_the_frame_network_says_what_a_network_without_spikes_ends_in(neuron):
    network = build(replace(TINY.network, neuron=neuron, history=3, tau_max=2e-3))
    frame = torch.rand(1, 2, 2, 32, 32)
    converged = network(frame.expand(200, -1, -1, -1, -1)).membrane[-1]
    torch.testing.assert_close(
        run_frames(network, frame, noise=0.1).membrane[0], converged, atol=1e-5, rtol=1e-4
    )


def test_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    config = SHORT.with_training(rate=1e30, validate_every=1, clip=1e30)
    with pytest.raises(InputError, match=r"not finite; lower training.rate; .*last.safetensors is whole"):
        train(config, tmp_path / "run")
    assert all(value.isfinite().all() for name, value in tensors(tmp_path / "run" / checkpoint.LAST).items()
               if "threshold" not in name)  # fmt: skip


def test_out_of_memory_says_what_to_lower(tmp_path, monkeypatch):
    run = Network.forward
    calls = iter(range(1000))

    def forward(self: Network, *arguments: object) -> object:
        if next(calls) == 20:
            torch.empty(10**15)
        return run(self, *arguments)

    monkeypatch.setattr(Network, "forward", forward)
    with pytest.raises(InputError, match=r"out of memory; lower training.batch .*; .* is whole"):
        train(SHORT, tmp_path / "run")


def test_full_disk_keeps_the_last_good_checkpoint(tmp_path):
    train(SHORT.with_training(steps=4), tmp_path / "run")
    saved = (tmp_path / "run" / checkpoint.LAST).read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "run" / checkpoint.BEST).unlink()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(saved) // 2, limit[1]))  # a file may not grow beyond
    try:
        config = SHORT.with_training(steps=4)
        with pytest.raises(
            InputError, match=r"cannot be written: File too large; .*last.safetensors is whole"
        ):
            _resume_with_more_steps(config, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert (tmp_path / "run" / checkpoint.LAST).read_bytes() == saved


def _resume_with_more_steps(config: Config, folder: Path) -> None:
    """As if the run had been killed two steps ago."""
    whole = checkpoint.read
    try:
        checkpoint.read = lambda path: dataclasses.replace(
            whole(path), summary=whole(path).summary | {"step": 6}
        )
        train(config, folder, resume=True)
    finally:
        checkpoint.read = whole


def test_a_folder_with_a_run_is_not_overwritten_and_another_configuration_not_resumed(tmp_path):
    train(SHORT.with_training(steps=1), tmp_path / "run")
    with pytest.raises(InputError, match="holds a training run; go on with --resume"):
        train(SHORT, tmp_path / "run")
    other = replace(SHORT, seed=3, network=replace(SHORT.network, c=1.5))
    with pytest.raises(InputError) as error:
        train(other, tmp_path / "run", resume=True)
    assert str(error.value) == (
        f"{tmp_path / 'run' / checkpoint.LAST}: was trained with another configuration: "
        "network.c was 1.4142135623730951, now 1.5, training.steps was 1, now 8, seed was 0, now 3; "
        "give the same one, or choose another folder"
    )
    with pytest.raises(InputError, match=r"last.safetensors: not a readable checkpoint"):
        train(SHORT, tmp_path / "none", resume=True)


def test_only_the_commands_change_how_the_process_keeps_memory():
    """malloc belongs to the process: `train` in a notebook leaves it alone, `nrf` owns its own."""
    training_alone = (
        "import sys, nrf.training.loop; sys.exit(any(m.startswith('nrf.cli') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", training_alone], check=False).returncode == 0
    command = "import sys; from nrf import cli; cli.keep_freed_memory = lambda: print('kept'); cli.main()"
    ran = subprocess.run(
        [sys.executable, "-c", command, "--version"], check=True, capture_output=True, text=True
    )
    assert ran.stdout.splitlines()[0] == "kept"


def test_minutes_end_a_run_early_with_checkpoints(tmp_path):
    summary = train(SHORT, tmp_path / "run", machine=training.Machine(minutes=1e-6))
    assert summary["step"] == 5  # pre-training, then one step


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("minutes", 0, "minutes is 0, expected float > 0"),
        ("minutes", -1, "minutes is -1, expected float > 0"),
        ("minutes", float("nan"), "minutes is nan, expected float > 0"),
        ("devices", 0, "devices is 0, expected int >= 1"),
        ("devices", -1, "devices is -1, expected int >= 1"),
        ("nodes", 0, "nodes is 0, expected int >= 1"),
        ("device", "tpu", "device is 'tpu', expected one of auto, cpu, cuda, mps"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(option, value, message):
    with pytest.raises(InputError, match=f"^{message}"):
        training.Machine(**{option: value})


@pytest.mark.parametrize(
    ("batch", "frames", "message"),
    [(3, 8, "training.batch is 3: 2 processes cannot share it"),
     (4, 1, "training.pretrain.batch is 1: too few for 2 processes")],
)  # fmt: skip
def test_every_process_gets_its_share(batch, frames, message, tmp_path):
    config = SHORT.with_training(batch=batch, pretrain=replace(SHORT.training.pretrain, batch=frames))
    with pytest.raises(InputError, match=message):
        train(config, tmp_path / "run", machine=training.Machine(devices=2))


def test_learning_rate_rises_then_falls_to_nothing():
    rates = [learning_rate(2.0, 0.1, p) for p in np.linspace(0, 1, 101)]
    assert rates[0] == 0 and max(rates) == rates[10] == 2.0 and rates[-1] == pytest.approx(0)
    assert np.all(np.diff(rates[:11]) > 0) and np.all(np.diff(rates[10:]) < 0)


def test_learning_rate_can_fall_by_the_same_factor_in_every_epoch():
    rates = [learning_rate(2.0, 0.0, progress, decay=0.95**50) for progress in (0.0, 0.5, 1.0)]
    assert rates == pytest.approx([2.0, 2.0 * 0.95**25, 2.0 * 0.95**50])


def test_jensen_shannon_is_scipys():
    p, q = torch.rand(2, 3, 4, 4, dtype=torch.float64)
    p, q = p / p.sum((-2, -1), keepdim=True), q / q.sum((-2, -1), keepdim=True)
    p[0, 0, 0] = 0.0
    p = p / p.sum((-2, -1), keepdim=True)
    theirs = [jensenshannon(a.flatten(), b.flatten()) ** 2 for a, b in zip(p, q, strict=True)]
    np.testing.assert_allclose(jensen_shannon(p, q), theirs)


def test_labels_can_come_late_and_distances_be_measured_in_halves_of_the_sensor():
    config = load_preset("tiny")
    network = build(config.network)
    batch = stack(load_clips(config), [0, 1])
    late = replace(config.training, delay=2, heat=0.0, firing=0.0, units="normalised")
    now = replace(late, delay=0)
    moved = Batch(batch.frames, batch.coordinates.roll(2, 0))
    pairs = zip(run_windows(network, batch, late), run_windows(network, moved, now), strict=True)
    for (_, delayed, _), (_, shifted, _) in pairs:
        assert delayed.error == shifted.error
        assert delayed.total.item() == pytest.approx(delayed.error / 16)


def test_a_fixed_threshold_stays_and_test_clips_are_never_trained_on(tmp_path):
    config = load_preset("paper-mini")
    clips = load_clips(config)
    assert len(clips) == 28
    read: set[int] = set()

    class Watched(list):
        def __getitem__(self, index):
            read.add(index)
            return super().__getitem__(index)

    train(config, tmp_path / "run", data=Watched(clips))
    assert max(read) == 19
    network = checkpoint.read(tmp_path / "run").network()
    assert {float(neuron.threshold) for neuron in network.body.spiking.values()} == {float(np.float32(0.1))}


def test_every_clip_comes_once_per_epoch_in_an_order_of_its_own():
    numbers = range(5, 12)
    seen = [n for step in range(7) for n in batch_numbers(numbers, 2, step, seed=3)]
    assert sorted(seen[:7]) == sorted(seen[7:]) == list(numbers) and seen[:7] != seen[7:]


@pytest.mark.parametrize("symmetry", range(8))
def test_events_and_coordinates_stay_together_under_every_symmetry(symmetry):
    frames = np.zeros((1, 2, 8, 8), np.uint8)
    frames[0, 1, 2, 6] = 1  # row 2, column 6
    moved, centres = flip_and_transpose(frames, np.array([[[6.0, 2.0]]], np.float32), symmetry)
    _, _, row, column = np.argwhere(moved)[0]
    assert (column, row) == tuple(centres[0, 0])


def test_running_averages_at_single_times_are_those_of_the_whole_clip():
    clips = load_clips(replace(TINY, data=replace(TINY.data, clips=2)))
    batch = running_average_at(clips, [1], [0], [25], average=0.3)
    whole = running_average(torch.from_numpy(clips[1][0])[:, None].float(), 0.3)
    torch.testing.assert_close(batch.frames[0, 0], whole[25, 0], atol=0.02, rtol=0)
    assert torch.equal(batch.coordinates[0, 0], torch.from_numpy(clips[1][1][25]))


def test_thresholds_are_set_to_the_wanted_rate():
    config = TINY.with_training(firing_range=(0.05, 0.2), pretrain=replace(TINY.training.pretrain, steps=0))
    network = build(config.network, config.seed)
    frames = (torch.rand(20, 4, 2, 32, 32) < 0.03).float()
    match_rates(network, frames, config.training)
    for name, share in network(frames).firing.items():
        assert float(share.detach().mean()) == pytest.approx(0.1, rel=0.1), name


@pytest.mark.parametrize("neuron", ["lif", "if"])
def test_a_population_that_nothing_drives_keeps_its_threshold(neuron):
    config = replace(SHORT, network=replace(SHORT.network, neuron=neuron))
    network = build(config.network, config.seed)
    with torch.no_grad():
        network.body.conv2_0.weight.fill_(0)
    frames = (torch.rand(20, 2, 2, 32, 32) < 0.03).float()
    silent = network.body.get_submodule(f"{neuron}2_0")
    for adapt in (scale_ramps, lambda *those: match_rates(*those, config.training)):
        adapt(network, frames)
        assert silent.threshold == config.network.threshold
        assert run_frames(network, frames).membrane.isfinite().all()


def test_heat_map_peaks_at_the_shape_and_sums_to_one():
    heat = heat_map(torch.tensor([[9.5, 21.5]]), Readout(stride=4.0, offset=1.5), 8, 8, sigma=3.0)
    assert heat.sum().item() == pytest.approx(1) and divmod(int(heat.argmax()), 8) == (5, 2)


def test_firing_costs_only_outside_its_range():
    quiet, fine, busy = (torch.full((1, 2), rate) for rate in (0.001, 0.1, 0.5))
    assert firing_penalty(fine, (0.01, 0.2)) == 0
    assert firing_penalty(quiet, (0.01, 0.2)) > 0 and firing_penalty(busy, (0.01, 0.2)) > 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_progress_is_plain_lines_in_a_log_and_a_bar_on_a_terminal(stream, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    row = Row(step=25, phase="time", loss=1.5, error=3.0, firing=0.1, rate=0.01, held_out=2.5)
    with progress(50, stream) as report:
        report(row)
        report(dataclasses.replace(row, step=26, held_out=None))
    figures = "loss 1.500, error 3.00 px, firing 0.100, held out 2.50 px"
    if isinstance(stream, Terminal):
        plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
        assert "26/50" in plain and figures in plain and "━" in plain
    else:
        assert stream.getvalue() == f"time 25/50: {figures}\n"


def test_a_dataset_on_disk_trains_like_the_same_clips_made_on_the_spot(tmp_path):
    config = SHORT.with_training(steps=2)
    clips = DatasetConfig("tiny", config.data.clips, config.seed, config.data.shapes)
    list(make_dataset(tmp_path / "clips", clips))
    assert train(config, tmp_path / "disk", data=tmp_path / "clips") == train(config, tmp_path / "spot")
    with pytest.raises(
        InputError, match=r"clips: 3 shapes on \(32, 32\) px at 0.001 s per step; the network"
    ):
        train(load_preset("demo"), tmp_path / "other", data=tmp_path / "clips")
