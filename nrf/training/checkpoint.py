"""Trained networks on disk: one safetensors file that carries its configuration. No pickle is ever read.

tensors     network/<name>, and for a run that can be resumed optimiser/<parameter>/<moment>
metadata    nrf: JSON with version, config (as in the TOML), summary (figures of the run)
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nrf.config import from_table, to_table
from nrf.containers import parse_json
from nrf.errors import InputError
from nrf.files import atomic_write, input_file
from nrf.model.network import Network, build
from nrf.training.config import Config

VERSION = 1
BEST, LAST = "best.safetensors", "last.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds."""

    config: Config
    summary: dict[str, Any]
    tensors: dict[str, Tensor]
    path: Path = Path("checkpoint")  # for messages

    def network(self) -> Network:
        """The network with its weights, ready to run."""
        network = build(self.config.network, self.config.seed)
        state = {name[8:]: value for name, value in self.tensors.items() if name.startswith("network/")}
        stored, expected = _shapes(state), _shapes(network.state_dict())
        if wrong := [name for name in expected | stored if stored.get(name) != expected.get(name)]:
            there, wanted = (shapes.get(wrong[0], "missing") for shapes in (stored, expected))
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            raise InputError(
                f"{self.path}: does not fit its own configuration: tensor '{wrong[0]}' is {there}, "
                f"in a network of this configuration {wanted}{more}; train it again"
            )
        network.load_state_dict(state)
        return network.eval()


def _shapes(tensors: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def write(
    path: str | Path,
    network: Network,
    config: Config,
    summary: dict[str, Any],
    extra: dict[str, Tensor] | None = None,
) -> None:
    """Save a network; `extra` tensors (the optimiser's) make it resumable."""
    tensors = {f"network/{name}": value for name, value in network.state_dict().items()} | (extra or {})
    # Shared weights and channels-last memory are not what the format holds: plain copies are.
    plain = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }
    header = {"version": VERSION, "config": to_table(config), "summary": summary}
    data = save(plain, metadata={"nrf": json.dumps(header)})
    with atomic_write(path) as part:
        part.write_bytes(data)


def read(path: str | Path) -> Checkpoint:
    """A checkpoint from a file, or the best one of a training folder.

    >>> read("runs/demo").summary["error"]  # doctest: +SKIP
    2.1
    """
    path = Path(path)
    if path.is_dir():
        path = path / BEST
    try:
        with safe_open(input_file(path) if path.exists() else path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: not a readable checkpoint ({error}); make one with `nrf train`") from error
    try:
        header = parse_json(metadata["nrf"])
        version, table, summary = header["version"], header["config"], dict(header["summary"])
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: safetensors, but not a checkpoint of nrf") from error
    if version != VERSION:
        raise InputError(f"{path}: checkpoint version {version}, this nrf reads {VERSION}")
    return Checkpoint(from_table(Config, table, str(path)), summary, tensors, path)
