"""Training: backpropagation through time (BPTT) with Adam, on one device or many, resumable.

A run is a function of its configuration. Which clips a step sees, their augmentation, the noise and the
learning rate depend on the seed and the number of the step alone; so a run that was killed and resumed ends
with the same weights as one that was not.

    DIR/config.toml              what was asked for
    DIR/log.csv                  one row per step
    DIR/best.safetensors         the network with the smallest held-out error
    DIR/last.safetensors         the newest, with the optimiser's state: where `resume` goes on
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from lightning_fabric import Fabric
from msgspec import Meta, structs
from torch import Tensor, nn

from nrf.config import Section, differences, to_toml
from nrf.errors import InputError
from nrf.files import atomic_write, make_folder, sole_writer
from nrf.model.integers import fix_grids
from nrf.model.network import Network, build, feeds, normalised
from nrf.training import checkpoint
from nrf.training.batches import LabelledClips, batch_numbers, centre_error, load_clips, split, stack
from nrf.training.config import Config, Positive
from nrf.training.evaluation import evaluate, run_windows
from nrf.training.log import Log, Row
from nrf.training.losses import loss_of
from nrf.training.pretraining import match_rates, run_frames, running_average, running_average_at, scale_ramps

Report = Callable[[Row], None]
Watch = Callable[[int, Network], None]  # after every validation: steps done, and the network


class Machine(Section, frozen=True):
    """Where to train, and for how long at most."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: Annotated[int, Meta(ge=1)] = 1  # processes on this node, one device each
    nodes: Annotated[int, Meta(ge=1)] = 1
    minutes: Positive | None = None  # stop then, whatever the step; the result depends on the machine's speed


def train(
    config: Config,
    out: str | Path,
    *,
    machine: Machine | None = None,
    resume: bool = False,
    data: str | Path | LabelledClips | None = None,
    report: Report = lambda row: None,
    watch: Watch = lambda step, network: None,
) -> dict[str, Any]:
    """Train a network into a folder; the summary of its best checkpoint (empty in helper processes).

    `data` is the folder of a dataset or the clips themselves; else the configuration says how to make them.

    >>> from nrf.training.presets import load_preset
    >>> train(load_preset("tiny"), "runs/tiny")["centre_error"]  # doctest: +SKIP
    7.9
    """
    out = Path(out)
    machine = machine or Machine()
    fabric = _launch(machine, config)
    with _clear_errors("data.clips or the features of the network"):
        clips = load_clips(config, data) if data is None or isinstance(data, str | Path) else data
        run = _Run(fabric, config, clips, out)
        if resume:
            run.restore()
        elif fabric.is_global_zero and (out / checkpoint.LAST).exists():
            raise InputError(f"{out}: holds a training run; go on with --resume, or choose another folder")
    with sole_writer(make_folder(out)) if fabric.is_global_zero else nullcontext():
        if fabric.is_global_zero and not resume:
            with atomic_write(out / "config.toml") as part:
                part.write_text(to_toml(config))
        with _clear_errors("training.batch or training.window", out / checkpoint.LAST):
            run.go(machine.minutes, report if fabric.is_global_zero else lambda row: None, watch)
        return checkpoint.read(out).summary if fabric.is_global_zero else {}


def learning_rate(peak: float, ramp: float, progress: float, decay: float | None = None) -> float:
    """Rises linearly to the peak in the share `ramp` of the way, then falls as half a cosine to 0.

    With `decay`, the factor that is left at the end, it falls exponentially.
    """
    if progress < ramp:
        return peak * progress / ramp
    if decay is not None:
        return float(peak * decay ** ((progress - ramp) / (1 - ramp)))
    return peak * (1 + math.cos(math.pi * (progress - ramp) / (1 - ramp))) / 2


class _Run:
    """One process of a training run: the network, its optimiser, and how far they are."""

    def __init__(self, fabric: Fabric, config: Config, clips: LabelledClips, out: Path) -> None:
        self.fabric, self.config, self.clips, self.out = fabric, config, clips, out
        self.numbers, self.held_out = split(len(clips) - config.data.test, config.data.validation)
        self.network = build(config.network, config.seed)
        fabric.to_device(self.network)
        self.optimiser = self._adam()
        self.steps = len(clips[0][0])  # of a clip
        self.step = 0
        self.best: dict[str, Any] = {}
        self.total = config.training.all_steps

    def _adam(self) -> torch.optim.Adam:
        decay = self.config.training.weight_decay
        return torch.optim.Adam(self.network.parameters(), weight_decay=decay)

    def go(self, minutes: float | None, report: Report, watch: Watch = lambda step, network: None) -> None:
        """Train from the present step to the end."""
        training, start = self.config.training, time.monotonic()
        log = Log(self.out / "log.csv", self.step) if self.fabric.is_global_zero else None
        while self.step < self.total:
            late = (time.monotonic() - start) / (60 * minutes) if minutes is not None else 0.0
            late = self.fabric.broadcast(late)  # one clock for all processes
            if late >= 1:
                self.step = max(self.step, training.pretrain.steps)
            row = self._on_frames() if self.step < training.pretrain.steps else self._through_time(late)
            self.step += 1
            done = self.step == self.total or late >= 1
            due = done or self.step % training.validate_every == 0
            firing: dict[str, float] = {}
            if due and self.step > training.pretrain.steps:
                error, firing = evaluate(self.network, self.clips, self.held_out, training, self.fabric)
                row = replace(row, held_out=error)
                watch(self.step, self.network)
            row = replace(row, seconds=round(time.monotonic() - start, 1))
            report(row)
            if log:
                log.write(row)  # before the checkpoint: resuming drops rows that are too many, and adds none
                if due:
                    self._save(row.held_out, firing)
            if done:
                break
        self.fabric.barrier()

    def _on_frames(self) -> Row:
        """One step of pre-training; see `nrf.training.pretraining`."""
        training, config = self.config.training, self.config.training.pretrain
        if self.step == 0:
            averages = running_average(self._several(), config.average)
            scale_ramps(self.network, averages[training.warm_up :])
        batch = running_average_at(self.clips, *self._choose(config.batch), config.average)
        batch = batch.to(self.fabric.device)
        output = run_frames(self.network, batch.frames, config.noise)
        limits = structs.replace(training, firing_range=config.firing_range)
        # Frames stand still, so the host's leaky integrator has converged to them.
        loss = loss_of(self.network, output, batch.coordinates, limits, readout=output.membrane[0])
        rate = learning_rate(config.rate, training.ramp, (self.step + 1) / (config.steps + 1))
        self._descend(loss.total, rate)
        return Row(self.step + 1, "frames", float(loss.total.detach()), loss.error, loss.firing, rate)

    def _through_time(self, late: float) -> Row:
        """One batch of clips by truncated BPTT, a step of the optimiser per window."""
        config, first = self.config.training, self.config.training.pretrain.steps
        if self.step == first:
            self.optimiser = self._adam()
            if config.thresholds == "matched":
                match_rates(self.network, self._several(), config)
            fix_grids(feeds(self.network.body), self.config.network.threshold)
        numbers, symmetries, _ = self._choose(config.batch)
        batch = stack(self.clips, numbers, symmetries).to(self.fabric.device)
        progress = max((self.step - first + 1) / (config.steps + 1), min(late, 1.0))
        epochs = config.steps * config.batch / len(self.numbers)
        decay = config.decay**epochs if config.schedule == "exponential" else None
        rate = learning_rate(config.rate, config.ramp, progress, decay)
        losses = []
        for _, loss, _ in run_windows(self.network, batch, config):
            self._descend(loss.total, rate)
            losses.append((float(loss.total.detach()), loss.error, loss.firing))
        total, error, firing = np.mean(losses, axis=0).tolist()
        return Row(self.step + 1, "time", total, error, firing, rate)

    def _several(self) -> Tensor:
        """Frames of a few clips, the same in every process: what thresholds are set by."""
        return stack(self.clips, self.numbers[:16]).frames.to(self.fabric.device)

    def _choose(self, size: int) -> tuple[list[int], list[int], list[int]]:
        """This process's share of the step's clips, their symmetries, a time in each. Seeds the noise."""
        training, mine = self.config.training, slice(self.fabric.global_rank, None, self.fabric.world_size)
        rng = np.random.default_rng((self.config.seed, self.step, 1))
        torch.manual_seed(int(rng.integers(2**62)) + self.fabric.global_rank)
        numbers = batch_numbers(self.numbers, size, self.step, self.config.seed)
        symmetries = rng.integers(0, 8 if training.augment else 1, size).tolist()
        times = rng.integers(training.warm_up, self.steps, size).tolist()
        return numbers[mine], symmetries[mine], times[mine]

    def _descend(self, loss: Tensor, rate: float) -> None:
        """One step of the optimiser on the mean gradient over all processes."""
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        self.optimiser.zero_grad()
        self.fabric.backward(loss)
        if self.fabric.world_size > 1:
            for p in parameters:
                gradient = torch.zeros_like(p) if p.grad is None else p.grad
                mean = self.fabric.all_reduce(gradient.contiguous(), reduce_op="mean")
                assert isinstance(mean, Tensor)
                p.grad = mean
        norm = nn.utils.clip_grad_norm_(parameters, self.config.training.clip)
        if not torch.isfinite(norm):
            raise InputError(
                f"step {self.step + 1}: loss {float(loss.detach()):.3g} has a gradient that is not finite; "
                "lower training.rate"
            )
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()

    def _save(self, error: float | None, firing: dict[str, float]) -> None:
        """Keep the best network, and where to go on from."""
        if error is not None and error < self.best.get("error", math.inf):
            self.best = {
                "preset": self.config.name,
                "seed": self.config.seed,
                "step": self.step,
                "error": error,
                "centre_error": centre_error(self.clips, self.held_out, self.config),
                "held_out_clips": len(self.held_out),
                "firing": firing,
            }
            checkpoint.write(self.out / checkpoint.BEST, normalised(self.network), self.config, self.best)
        tensors = {
            f"optimiser/{name}/{key}": value
            for name, p in self.network.named_parameters()
            for key, value in self.optimiser.state[p].items()
        }
        summary = {"step": self.step, "best": self.best}
        checkpoint.write(self.out / checkpoint.LAST, self.network, self.config, summary, tensors)

    def restore(self) -> None:
        """Go back to the last checkpoint."""
        path = self.out / checkpoint.LAST
        saved = checkpoint.read(path)
        if changes := differences(saved.config, self.config):
            words = [f"{key} was {before}, now {now}" for key, (before, now) in changes.items()]
            more = f" and {len(words) - 4} more" if len(words) > 4 else ""
            raise InputError(
                f"{path}: was trained with another configuration: {', '.join(words[:4])}{more}; "
                "give the same one, or choose another folder"
            )
        if not {"step", "best"} <= saved.summary.keys():
            raise InputError(f"{path}: does not say how far it was trained; choose another folder")
        self.network.load_state_dict(saved.network().state_dict())
        for name, p in self.network.named_parameters():
            prefix = f"optimiser/{name}/"
            for key, value in saved.tensors.items():
                if key.startswith(prefix):
                    like = torch.empty_like(p) if value.shape == p.shape else torch.empty_like(value)
                    self.optimiser.state[p][key.removeprefix(prefix)] = like.copy_(value)
        self.step, self.best = saved.summary["step"], saved.summary["best"]


def _launch(machine: Machine, config: Config) -> Fabric:
    processes = machine.devices * machine.nodes
    if config.training.batch % processes:
        raise InputError(f"training.batch is {config.training.batch}: {processes} processes cannot share it")
    pretrain = config.training.pretrain
    if pretrain.steps and pretrain.batch < processes:
        raise InputError(f"training.pretrain.batch is {pretrain.batch}: too few for {processes} processes")
    try:
        fabric = Fabric(
            accelerator=machine.device,
            devices=machine.devices,
            num_nodes=machine.nodes,
            strategy="ddp" if processes > 1 else "auto",
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(f"device '{machine.device}' x {machine.devices} cannot be used: {error}") from error
    fabric.launch()
    return fabric


@contextmanager
def _clear_errors(smaller: str, last: Path | None = None) -> Iterator[None]:
    """Out of memory, full disk, not finite: one line that says what to do and, in training, what is safe."""
    try:
        yield
    except (MemoryError, RuntimeError, InputError) as error:
        text = str(error)
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate" in text:
            text = f"out of memory; lower {smaller}"
        elif not isinstance(error, InputError):
            raise
        if last is not None and last.exists():
            text += f"; {last} is whole, go on from it with --resume"
        raise InputError(text) from error
