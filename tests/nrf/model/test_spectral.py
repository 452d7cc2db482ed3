"""Convolution through spectra against torch's, forward and backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from nrf.model import convolution, spectral
from nrf.model.convolution import convolve
from tests.nrf.model.test_convolution import gradients


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@settings(deadline=None, max_examples=60)
@given(
    maps=st.integers(1, 20),
    inputs=st.sampled_from([1, 3, 16, 20, 32]),
    features=st.sampled_from([2, 16, 17, 32]),
    kernel=st.integers(1, 9),
    padding=st.integers(0, 6),
    size=st.tuples(st.integers(9, 13), st.integers(9, 13)),
    threads=st.integers(1, 3),
    biased=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_spectra_give_the_sum_over_all_taps_and_its_gradients(
    maps: int,
    inputs: int,
    features: int,
    kernel: int,
    padding: int,
    size: tuple[int, int],
    threads: int,
    biased: bool,
    seed: int,
) -> None:
    x, weight = normal(seed, maps, inputs, *size), normal(seed + 1, features, inputs, kernel, kernel)
    bias = [normal(seed + 2, features)] if biased else []
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ours = gradients(lambda x, w, b=None: spectral.convolve(x, w, b, padding), x, weight, *bias)
        to_x = spectral.input_gradient(x.shape, weight, torch.ones_like(ours[0]), padding)
    finally:
        torch.set_num_threads(before)
    theirs = gradients(lambda x, w, b=None: functional.conv2d(x, w, b, 1, padding), x, weight, *bias)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    everything = torch.nn.grad.conv2d_input(x.shape, weight, torch.ones_like(ours[0]), padding=padding)
    torch.testing.assert_close(to_x, everything, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("padding", [0, 3])
def test_single_precision_is_as_exact_as_torch(padding: int) -> None:
    x, weight = normal(0, 30, 16, 24, 24), normal(1, 16, 16, 7, 7)
    exact = gradients(lambda x, w: functional.conv2d(x, w, padding=padding), x, weight)
    single = x.float(), weight.float()
    ours = gradients(lambda x, w: spectral.convolve(x, w, None, padding).double(), *single)
    theirs = gradients(lambda x, w: functional.conv2d(x, w, padding=padding).double(), *single)
    for a, b, c in zip(ours, theirs, exact, strict=True):
        assert (a - c).norm() < 2 * (b - c).norm() + 1e-7 * c.norm()


@pytest.mark.parametrize(
    ("maps", "weight", "faster"),
    [
        ((100, 16, 24, 24), (16, 16, 7, 7), True),
        ((100, 16, 16, 16), (32, 16, 7, 7), True),
        ((100, 16, 24, 24), (16, 16, 3, 3), False),
        ((100, 2, 24, 24), (16, 2, 3, 3), False),
        ((1, 16, 12, 12), (16, 16, 5, 5), False),  # spectra of the kernel for one map
        ((100, 192, 75, 75), (192, 192, 7, 7), False),  # gigabytes of them
        ((0, 16, 24, 24), (16, 16, 7, 7), False),
    ],
)
def test_large_kernels_are_worth_it(maps: tuple[int, ...], weight: tuple[int, ...], faster: bool) -> None:
    sizes = maps, weight, weight[-1] // 2
    assert (spectral.cost(*sizes) < spectral.dense_cost(*sizes)) is faster


def test_only_inexact_dense_maps_on_the_way_to_a_gradient_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def watch(*arguments: object) -> Tensor:
        taken.append("spectra")
        return functional.conv2d(arguments[0], arguments[1], arguments[2], padding=arguments[3])

    monkeypatch.setattr(spectral, "convolve", watch)
    x, weight = normal(0, 50, 16, 24, 24), normal(1, 16, 16, 7, 7)
    convolve(x, weight, None, 1, 3)
    convolve(x, weight, None, 2, 3, exact=False)
    with torch.no_grad():
        convolve(x, weight, None, 1, 3, exact=False)
    convolve(x * (x > 2), weight, None, 1, 3, exact=False)
    assert not taken
    convolve(x * (x > 2), weight, None, 1, 3, exact=False, sparse=False)
    convolve(x, weight, None, 1, 3, exact=False)
    convolve(x * (x > 1), weight, None, 1, 3, exact=False)  # too many events
    assert taken == ["spectra"] * 3


def test_few_features_leave_the_input_gradient_to_torch() -> None:
    maps, narrow, wide = (100, 16, 12, 12), (3, 16, 5, 5), (16, 16, 5, 5)
    assert spectral.cost(maps, narrow, 2) < spectral.dense_cost(maps, narrow, 2)
    assert not spectral.pays_back(maps, narrow, 2)
    assert spectral.pays_back(maps, wide, 2)


def test_the_input_gradient_of_events_may_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = normal(0, 20, 16, 24, 24), normal(1, 16, 16, 7, 7)
    events, answers = x * (x > 1.5), []
    for faster in (True, False):
        monkeypatch.setattr(convolution.spectral, "pays_back", lambda *sizes, faster=faster: faster)
        answers.append(gradients(lambda x, w: convolve(x, w, None, 1, 3), events, weight))
    for a, b in zip(*answers, strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.equal(answers[0][1], answers[1][1])  # they came another way
