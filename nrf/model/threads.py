"""Compiled loops on several threads: they release the GIL."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def in_parallel(work: Callable[[slice], T], frames: int) -> list[T]:
    """The work on each thread's part of the frames, on as many threads as torch uses.

    >>> sum(in_parallel(lambda part: part.stop - part.start, 10))
    10
    """
    size = -(-frames // torch.get_num_threads())
    parts = [slice(first, min(first + size, frames)) for first in range(0, frames, size)]
    if len(parts) == 1:
        return [work(parts[0])]
    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(work, parts))
