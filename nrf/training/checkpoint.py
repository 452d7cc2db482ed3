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

from nrf.errors import InputError
from nrf.files import atomic_write
from nrf.model.network import Network, build
from nrf.training.config import Config, from_dict

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
        network = build(self.config)
        state = {name[8:]: value for name, value in self.tensors.items() if name.startswith("network/")}
        if wrong := _differences(network.state_dict(), state):
            more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
            raise InputError(
                f"{self.path}: does not fit its own configuration: {wrong[0]}{more}; train it again"
            )
        network.load_state_dict(state)
        return network.eval()


def _differences(wanted: dict[str, Tensor], found: dict[str, Tensor]) -> list[str]:
    """What keeps tensors from being the state of a network, in words."""
    wrong = [f"tensor '{name}' is missing" for name in wanted if name not in found]
    wrong += [f"tensor '{name}' is unknown" for name in found if name not in wanted]
    return wrong + [
        f"tensor '{name}' has shape {tuple(found[name].shape)}, expected {tuple(wanted[name].shape)}"
        for name in wanted
        if name in found and found[name].shape != wanted[name].shape
    ]


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
    header = {"version": VERSION, "config": config.to_dict(), "summary": summary}
    data = save(plain, metadata={"nrf": json.dumps(header)})
    with atomic_write(path) as part:
        part.write_bytes(data)


def read(path: str | Path) -> Checkpoint:
    """A checkpoint from a file, or the best one of a training folder."""
    path = Path(path)
    if path.is_dir():
        path = path / BEST
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: not a readable checkpoint ({error}); make one with `nrf train`") from error
    try:
        header = json.loads(metadata["nrf"])
        if header["version"] != VERSION:
            raise InputError(f"{path}: checkpoint version {header['version']}, this nrf reads {VERSION}")
        return Checkpoint(from_dict(header["config"], str(path)), header["summary"], tensors, path)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: safetensors, but not a checkpoint of nrf") from error


def load(path: str | Path) -> tuple[Network, Config, dict[str, Any]]:
    """The network, its configuration and the figures of its training.

    >>> network, config, summary = load("runs/demo")
    >>> summary["error"], summary["centre_error"]
    (2.1, 17.3)
    """
    checkpoint = read(path)
    return checkpoint.network(), checkpoint.config, checkpoint.summary
