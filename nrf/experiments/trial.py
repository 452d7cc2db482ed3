"""Does it run here? One short training step of every model of a size, and the memory that it takes."""

import resource
import time
from collections.abc import Iterator
from typing import Any

import torch
from msgspec.structs import replace

from nrf.events.synthetic import clip
from nrf.experiments.design import MODELS, Arm, Size, configuration, tuning_runs
from nrf.model.network import build
from nrf.training.batches import Batch
from nrf.training.evaluation import run_windows

WINDOW, WARM_UP = 4, 2  # time steps with and without gradient
GIBI = 2**30


def try_every_model(size: Size, device: str = "auto") -> Iterator[dict[str, Any]]:
    """One optimiser step of each model on one clip and a few time steps; what the full batch would take.

    What is kept for the gradient is what fills a GPU; it grows with clips and with time steps.
    """
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    for model in MODELS:
        config = configuration(tuning_runs(Arm(model, "rf", "rf", "temporal"), size)[0], size)
        network, full = build(config.network, config.seed).to(device), config.training
        optimiser = torch.optim.Adam(network.parameters(), lr=full.rate)
        made = clip(0, replace(config.data.shapes, steps=WINDOW + WARM_UP))
        frames, coordinates = (torch.from_numpy(a)[:, None] for a in (made.frames(), made.coordinates))
        kept: dict[int, int] = {}  # bytes by address

        def keep(tensor: torch.Tensor, kept: dict[int, int] = kept) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        started = time.monotonic()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            short = replace(full, warm_up=WARM_UP, window=WINDOW, delay=0)
            for _, loss, _ in run_windows(
                network, Batch(frames, coordinates).to(torch.device(device)), short
            ):
                loss.total.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        gibi = sum(kept.values()) / GIBI
        yield {
            "model": model,
            "weights": sum(p.numel() for p in network.parameters()),
            "seconds": round(time.monotonic() - started, 1),
            f"GiB for the gradient of {WINDOW} steps": round(gibi, 2),
            f"GiB for {full.window} steps of {full.batch} clips": round(
                gibi * full.batch * full.window / WINDOW
            ),
            "peak GiB of this process": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        }
