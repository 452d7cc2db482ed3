"""Activation checkpointing over time: the same gradients, in less memory."""

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from nrf.model.config import BlockConfig, NetworkConfig
from nrf.model.network import build
from nrf.training.batches import Batch
from nrf.training.config import TrainingConfig
from nrf.training.evaluation import run_windows

STEPS, CLIPS = 24, 2
BLOCKS = (BlockConfig(4, kernel=5, pool=2), BlockConfig(4, kernel=3))


def gradients(neuron: str, segment: int) -> tuple[list[Tensor], float, int]:
    """Of all parameters; the loss; and the bytes that were kept for the way back."""
    config = TrainingConfig(window=STEPS, warm_up=0, segment=segment, firing_range=(0.2, 0.3), firing=1.0)
    shape = NetworkConfig(blocks=BLOCKS, input=(2, 16, 16), neuron=neuron, learn_tau=True, threshold=0.1)  # type: ignore[arg-type]
    network = build(replace(shape, share=True)).double()
    rng = torch.Generator().manual_seed(0)
    frames = (torch.rand(STEPS, CLIPS, 2, 16, 16, generator=rng) < 0.1).double()
    places = 16 * torch.rand(STEPS, CLIPS, 3, 2, generator=rng).double()
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        ((_, loss, _),) = run_windows(network, Batch(frames, places), config)
    held = sum(kept.values())
    loss.total.backward()
    return [p.grad for p in network.parameters() if p.grad is not None], loss.total.item(), held


@pytest.mark.parametrize("neuron", ["lif", "li"])
@pytest.mark.parametrize("segment", [1, 5, 12])
def test_segments_change_no_gradient_and_need_less_memory(neuron: str, segment: int) -> None:
    (whole, loss, all_bytes), (parts, same, some_bytes) = gradients(neuron, 0), gradients(neuron, segment)
    assert loss == pytest.approx(same, rel=1e-12) and len(whole) == len(parts) > 3
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert any(a.abs().max() > 0 for a in whole)
    assert some_bytes < all_bytes / 3
