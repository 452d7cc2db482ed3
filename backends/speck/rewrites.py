"""Exact rewrites of kernels: what the chip does not have, written as what it has. No spike changes.

Each takes a kernel and gives another one that computes the same; its docstring says why.
"""

from dataclasses import replace

import numpy as np

from nrf.backends.lowering.operators import ConvT, undilated, ungrouped
from nrf.backends.speck.program import Kernel
from nrf.findings import Finding


def dilation_written_out(kernel: Kernel) -> Kernel:
    """the gaps are zeros, every weight meets the pixel that it met"""
    return undilated(kernel)


def groups_written_out(kernel: Kernel) -> Kernel:
    """the weights between groups are zeros"""
    return replace(kernel, weight=ungrouped(kernel), groups=1)


def stride_of_one_place(kernel: ConvT) -> ConvT:
    """as large as the map, it is at one place only and takes no step"""
    whole = kernel.weight.shape[2:] == kernel.input_shape[1:]
    alone = whole and kernel.padding == (0, 0) and kernel.dilation == (1, 1)
    return replace(kernel, stride=(1, 1)) if alone else kernel


def kernel_made_square(kernel: Kernel) -> Kernel:
    """the weights around it are zeros, and padding grows by those in front, so that outputs stay in place"""
    side = max(kernel.weight.shape[2:])
    around, padding = [(0, 0), (0, 0)], []
    for size, pad in zip(kernel.weight.shape[2:], kernel.padding, strict=True):
        # In the middle, so that the map is what a convolution gives, or a line more or less; more in front
        # would need a padding beyond half the kernel, which a core with its largest kernel does not have.
        front = min((side - size + 1) // 2, max((side - 1) // 2 - pad, 0))
        around.append((front, side - size - front))
        padding.append(pad + front)
    return replace(kernel, weight=np.pad(kernel.weight, around), padding=(padding[0], padding[1]))


def rewritten(kernel: Kernel, node: str) -> tuple[Kernel, list[Finding]]:
    """A kernel as a core can hold it, and a note on every rewrite that it took."""
    notes = []
    for rewrite in (dilation_written_out, groups_written_out, stride_of_one_place, kernel_made_square):
        before, kernel = kernel, rewrite(kernel)
        held = [_words(one, before.stride != kernel.stride) for one in (before, kernel)]
        if held[0] != held[1]:
            message = f"its kernel is held {' as '.join(held)}: {rewrite.__doc__}"
            notes.append(Finding(rewrite.__name__, "note", node, message))
    return kernel, notes


def _words(kernel: Kernel, with_stride: bool) -> str:
    return "x".join(map(str, kernel.weight.shape)) + f" with stride {kernel.stride[0]}" * with_stride
