"""Clips window by window, for truncated backpropagation through time and to measure."""

from collections.abc import Iterator, Sequence

import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from nrf.model.network import Network, Output, State
from nrf.training.batches import Batch, LabelledClips, stack
from nrf.training.config import TrainingConfig
from nrf.training.losses import Loss, loss_of


def run_segments(network: Network, frames: Tensor, state: State | None, steps: int) -> Output:
    """The same as `network(frames, state)` with the same gradients, in less memory: activation checkpointing.

    Only states between segments of `steps` steps are kept, the rest is computed again on the way back, for
    one more way forward. With 0 steps, all is kept.
    """
    if steps == 0 or steps >= len(frames) or not torch.is_grad_enabled():
        return network(frames, state)

    def segment(frames: Tensor, state: State | None) -> tuple[Tensor, dict[str, Tensor], State]:
        output = network(frames, state)
        return output.membrane, output.firing, output.state

    maps, firing = [], []
    for piece in torch.split(frames, steps):
        membrane, shares, state = checkpoint(segment, piece, state, use_reentrant=False)
        maps.append(membrane)
        firing.append(shares)
    whole = {name: torch.cat([shares[name] for shares in firing]) for name in firing[0]}
    return Output(torch.cat(maps), whole, state or {})


def run_windows(
    network: Network, batch: Batch, config: TrainingConfig
) -> Iterator[tuple[int, Loss, dict[str, Tensor]]]:
    """Length, loss and firing of every window. State is carried on, its gradient is truncated."""
    state, readout = None, None
    if config.warm_up:
        with torch.no_grad():
            output = network(batch.frames[: config.warm_up])
            state, readout = output.state, network.coordinates(output.membrane)[2]
    for first in range(config.warm_up, len(batch.frames), config.window):
        part = slice(first, first + config.window)
        output = run_segments(network, batch.frames[part], state, config.segment)
        late = slice(first - config.delay, first - config.delay + len(output.membrane))
        loss = loss_of(network, output, batch.coordinates[late], config, readout)
        yield len(output.membrane), loss, output.firing
        state = {name: v.detach() for name, v in output.state.items()}
        readout = None if loss.readout is None else loss.readout.detach()


@torch.no_grad()
def evaluate(
    network: Network,
    clips: LabelledClips,
    numbers: Sequence[int],
    config: TrainingConfig,
    fabric: Fabric | None = None,
) -> tuple[float, dict[str, float]]:
    """Mean error in pixels after the warm-up, and spikes per neuron and step of every population."""
    fabric = fabric or Fabric(devices=1)
    mine = list(numbers)[fabric.global_rank :: fabric.world_size]
    populations = [name for name in network.body.spiking if name != "out"]
    sums = dict.fromkeys(("error", "weight", *populations), 0.0)  # the same in a process that has no clip
    network.eval()
    for first in range(0, len(mine), config.batch):
        some = mine[first : first + config.batch]
        for steps, loss, firing in run_windows(network, stack(clips, some).to(fabric.device), config):
            weight = steps * len(some)
            sums["error"] += weight * loss.error
            sums["weight"] += weight
            for name, share in firing.items():
                sums[name] += weight * float(share.mean())
    network.train()
    total = fabric.all_reduce(torch.tensor(list(sums.values()), device=fabric.device), reduce_op="sum")
    assert isinstance(total, Tensor)
    means = dict(zip(sums, (total / total[1]).tolist(), strict=True))
    return means["error"], {name: means[name] for name in populations}
