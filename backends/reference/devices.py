"""Where and how precisely torch computes, by the words of a command line."""

import torch

from nrf.errors import InputError

PRECISIONS = {"float32": torch.float32, "float64": torch.float64}


def check_device(device: str) -> None:
    """Refuse a device that this torch cannot use."""
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = device.partition(":")[0]
    if kind not in here:
        raise InputError(f"device is '{device}', expected cpu, cuda, cuda:N or mps")
    if not here[kind]:
        raise InputError(f"device '{device}' is not there, or this torch cannot use it; use cpu")


def dtype_of(precision: str) -> torch.dtype:
    """float32 or float64."""
    if precision not in PRECISIONS:
        raise InputError(f"precision is '{precision}', expected one of {', '.join(PRECISIONS)}")
    return PRECISIONS[precision]
