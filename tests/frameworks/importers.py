"""Run graphs through the importer of a framework; this script runs in its environment, without nrf.

    python importers.py FRAMEWORK CASES OUT

CASES is what `nrf conform --write-cases` wrote. For every case OUT gets either `<case>.npy`, the output of
the imported network (T, *shape), or `<case>.txt`, why the framework does not take the graph. Networks step by
the case's own dt where the importer has such an argument, and in float64 where it lets itself be cast.
"""

import contextlib
import io
import json
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nir
import numpy as np

PATIENCE = 30  # seconds per case: Spyx looks for the end of a recurrent graph for ever
Importer = Callable[[nir.NIRGraph, np.ndarray, float], np.ndarray]


def step_by_step(module: Any, frames: np.ndarray) -> np.ndarray:
    """Feed one frame after the other, with a batch axis; hand the state on where the network returns one."""
    import torch

    state, record = None, []
    for frame in torch.from_numpy(frames).double()[:, None]:
        answer = module(frame, state) if state is not None else module(frame)
        value, state = answer if isinstance(answer, tuple) else (answer, None)
        record.append(value[0].detach().numpy())
    return np.stack(record)


def snntorch(graph: nir.NIRGraph, frames: np.ndarray, dt: float) -> np.ndarray:
    """snntorch.import_nir.import_from_nir, whose dt is 1e-4."""
    from snntorch.import_nir import import_from_nir

    return step_by_step(import_from_nir(graph).double(), frames)


def norse(graph: nir.NIRGraph, frames: np.ndarray, dt: float) -> np.ndarray:
    """norse.torch.from_nir."""
    from norse.torch import from_nir

    return step_by_step(from_nir(graph, ignore_warnings=True, dt=dt).double(), frames)


def spikingjelly(graph: nir.NIRGraph, frames: np.ndarray, dt: float) -> np.ndarray:
    """spikingjelly.activation_based.nir_exchange.from_nir.import_from_nir."""
    import torch
    from spikingjelly.activation_based.nir_exchange.from_nir import import_from_nir

    return step_by_step(import_from_nir(graph, dt=dt, dtype=torch.float64), frames)


def rockpool(graph: nir.NIRGraph, frames: np.ndarray, dt: float) -> np.ndarray:
    """rockpool.nn.modules.torch.nir.from_nir; it takes all steps at once, (batch, T, *shape)."""
    import torch
    from rockpool.nn.modules.torch.nir import from_nir

    answer = from_nir(graph)(torch.from_numpy(frames).float()[None])
    value = answer[0] if isinstance(answer, tuple) else answer
    return np.asarray(value[0].detach())


def sinabs(graph: nir.NIRGraph, frames: np.ndarray, dt: float) -> np.ndarray:
    """sinabs.nir.from_nir; it takes all steps at once, (batch x T, *shape)."""
    import torch
    from sinabs.nir import from_nir

    answer = from_nir(graph, batch_size=1)(torch.from_numpy(frames).float())
    value = answer[0] if isinstance(answer, tuple) else answer
    return np.asarray(value.detach())


def spyx(graph: nir.NIRGraph, frames: np.ndarray, dt: float) -> np.ndarray:
    """spyx.nir.from_nir; channels come last, (T, batch, *shape)."""
    import jax
    import spyx.nir

    jax.config.update("jax_enable_x64", True)
    last = np.moveaxis(frames, 1, -1) if frames.ndim == 4 else frames
    _, outputs = spyx.nir.from_nir(graph, jax.numpy.asarray(last, float)[:, None], dt=dt)
    value = np.asarray(outputs)[:, 0]
    return np.moveaxis(value, -1, 1) if value.ndim == 4 else value


IMPORTERS: dict[str, Importer] = {
    function.__name__: function for function in (snntorch, sinabs, norse, spikingjelly, rockpool, spyx)
}


def give_up(*_: object) -> None:
    """What the alarm clock does."""
    raise TimeoutError(f"no answer within {PATIENCE} s")


def main(framework: str, cases: Path, out: Path) -> None:
    """All cases through one importer."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, give_up)
    out.mkdir(parents=True, exist_ok=True)
    for folder in sorted(path for path in cases.iterdir() if path.is_dir()):
        frames = np.load(folder / "input.npz")["frames"]
        signal.alarm(PATIENCE)
        try:
            graph = nir.read(folder / "model.nir")
            dt = json.loads(graph.metadata["nrf_contract"])["dt"] if graph.metadata else None
            with contextlib.redirect_stdout(io.StringIO()):
                output = IMPORTERS[framework](graph, frames, dt or 1.0)
        except Exception as error:  # whatever a framework raises is its answer
            lines = str(error).strip().splitlines() or [""]
            (out / f"{folder.name}.txt").write_text(f"{type(error).__name__}: {lines[0]}")
        else:
            np.save(out / f"{folder.name}.npy", output)
        finally:
            signal.alarm(0)
    print(len(list(out.iterdir())))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
