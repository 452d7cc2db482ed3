"""Event-driven convolution and pooling against torch's dense ones, forward and backward."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from nrf.model import convolution
from nrf.model.convolution import convolve
from nrf.model.layers import AvgPool, SumPool


def gradients(run: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """The result, and the gradients of a random sum of it."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    y = run(*leaves)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), leaves)]


def sparse(rng: torch.Generator, share: float, *shape: int) -> Tensor:
    """Maps in which a share of the numbers is not 0."""
    alive = torch.rand(shape, generator=rng) < share
    return torch.randn(shape, generator=rng, dtype=torch.float64) * alive


@given(
    frames=st.integers(1, 5),
    inputs=st.integers(1, 4),
    features=st.integers(1, 12),
    kernel=st.sampled_from([1, 2, 3, 5, 9]),
    padding=st.integers(0, 5),
    size=st.tuples(st.integers(9, 14), st.integers(9, 14)),
    share=st.floats(0, 0.2),
    threads=st.integers(1, 3),
    biased=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_events_give_the_dense_convolution(
    frames: int,
    inputs: int,
    features: int,
    kernel: int,
    padding: int,
    size: tuple[int, int],
    share: float,
    threads: int,
    biased: bool,
    seed: int,
) -> None:
    rng = torch.Generator().manual_seed(seed)
    x = sparse(rng, share, frames, inputs, *size)
    weight = sparse(rng, 1.0, features, inputs, kernel, kernel)
    bias = [sparse(rng, 1.0, features)] if biased else []
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        events: Callable[..., Tensor] = convolution._EventDriven.apply  # type: ignore[assignment]
        ours = gradients(lambda x, w, b=None: events(x, w, b, padding), x, weight, *bias)
    finally:
        torch.set_num_threads(before)
    theirs = gradients(lambda x, w, b=None: functional.conv2d(x, w, b, 1, padding), x, weight, *bias)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_busy_and_strided_convolutions_stay_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    taken: list[str] = []
    original = convolution._EventDriven.apply

    def watch(*arguments: object) -> Tensor:
        taken.append("events")
        result: Tensor = original(*arguments)  # type: ignore[no-untyped-call]
        return result

    monkeypatch.setattr(convolution._EventDriven, "apply", watch)
    quiet, busy = sparse(rng, 0.1, 2, 2, 9, 9), sparse(rng, 0.5, 2, 2, 9, 9)
    wide, narrow = sparse(rng, 1.0, 8, 2, 3, 3), sparse(rng, 1.0, 3, 2, 3, 3)
    convolve(busy, wide, None, 1, 1)
    convolve(quiet, wide, None, 2, 1)
    convolve(busy, narrow, None, 1, 1)
    assert not taken
    convolve(quiet, wide, None, 1, 1)
    convolve(quiet, narrow, None, 1, 1)
    assert taken == ["events"] * 2


@pytest.mark.parametrize("side", [2, 3])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pools_are_those_of_torch_in_any_layout(side: int, layout: torch.memory_format) -> None:
    x = torch.randn(6, 5, 10, 13, dtype=torch.float64).to(memory_format=layout)
    for pool, divisor in ((AvgPool(side), side**2), (SumPool(side), 1)):
        ours = gradients(lambda x, pool=pool: pool(x.unflatten(0, (2, 3))).flatten(0, 1), x)
        theirs = gradients(lambda x, d=divisor: functional.avg_pool2d(x, side, divisor_override=d), x)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
